"""What durable functions call: steps, sleeps, signals. `tasklib.sync` has the same for sync functions.

@task(durable=True)
async def order(number: int) -> None:
    await step("charge", charge, number)
    await sleep(timedelta(days=3))
    if await wait_for_signal("approved", timeout=86400):
        await step("ship", ship, number)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NoReturn, ParamSpec, TypeAlias, TypeVar, TypeVarTuple, Unpack, overload

from tasklib.errors import InvalidOption
from tasklib.tasks.approvals import Approval, ApproverRole, Question
from tasklib.tasks.durable_driving import drive, run
from tasklib.tasks.durable_effects import (
    CallFunction,
    Steps,
)
from tasklib.tasks.durable_run import DurableRun
from tasklib.tasks.flow_parts import Signature
from tasklib.tasks.flow_results import SettledTask
from tasklib.tasks.flow_runs import Submittable
from tasklib.tasks.flows import Policy, When
from tasklib.tasks.gathering import ChildFlow, IfCancelled

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
R = TypeVar("R")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
Part: TypeAlias = Signature[R] | Submittable[R]
T = TypeVar("T")


@overload
def step(
    name: str, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
) -> Coroutine[Any, Any, R]: ...
@overload
def step(name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...
@overload
def step(  # with options, the arguments go by position: a ParamSpec leaves no room for other keywords
    name: str,
    function: Callable[[Unpack[Ts]], Coroutine[Any, Any, R]],
    /,
    *args: *Ts,
    key: str | int | None = ...,
    retries: int = ...,
    transactional: Literal[False] = ...,
) -> Coroutine[Any, Any, R]: ...
@overload
def step(
    name: str,
    function: Callable[[Unpack[Ts]], R],
    /,
    *args: *Ts,
    key: str | int | None = ...,
    retries: int = ...,
    transactional: Literal[False] = ...,
) -> Coroutine[Any, Any, R]: ...
@overload
def step(
    name: str,
    function: Callable[[Any, Unpack[Ts]], Coroutine[Any, Any, R]],
    /,
    *args: *Ts,
    key: str | int | None = ...,
    retries: int = ...,
    transactional: Literal[True],
) -> Coroutine[Any, Any, R]: ...
@overload
def step(
    name: str,
    function: Callable[[Any, Unpack[Ts]], R],
    /,
    *args: *Ts,
    key: str | int | None = ...,
    retries: int = ...,
    transactional: Literal[True],
) -> Coroutine[Any, Any, R]: ...
async def step(  # type: ignore[misc]  # a function with parameters of these names is given as a partial
    name: str,
    function: Callable[..., Any],
    /,
    *args: Any,
    key: str | int | None = None,
    retries: int = 0,
    transactional: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a function once in the life of a durable task: later runs get what it returned from the record.

    `key` tells apart steps of one name. `retries`: so many more tries if it raises, before the error comes out.
    `transactional=True`: its first argument is a connection, and what it writes there is committed with the record.
    """
    call = CallFunction(function, args, kwargs)
    return await drive(checked_step(run(), name, call, key=key, retries=retries, transactional=transactional))


async def sleep(duration: float | timedelta | datetime, *, name: str = "sleep", key: str | int | None = None) -> None:
    """Wait for so many seconds, a timedelta, or until a moment. The task gives its slot back meanwhile."""
    await drive(run().sleep(duration, name=name, key=key))


async def wait_for_signal(name: str, *, timeout: float | timedelta | None = None, key: str | int | None = None) -> Any:
    """Wait for a signal and return its payload; TimeoutError if none comes in time. The slot is given back."""
    return await drive(run().wait_for_signal(name, timeout=timeout, key=key))


@overload
async def wait_for_approval(
    name: str,
    *,
    title: str = "",
    details: Any = None,
    role: ApproverRole = "approver",
    timeout: float | timedelta | None = None,
    key: str | int | None = None,
) -> Approval[None]: ...
@overload
async def wait_for_approval(
    name: str,
    *,
    form: type[R],
    title: str = "",
    details: Any = None,
    role: ApproverRole = "approver",
    timeout: float | timedelta | None = None,
    key: str | int | None = None,
) -> Approval[R]: ...
async def wait_for_approval(
    name: str,
    *,
    form: type[Any] | None = None,
    title: str = "",
    details: Any = None,
    role: ApproverRole = "approver",
    timeout: float | timedelta | None = None,
    key: str | int | None = None,
) -> Approval[Any]:
    """Ask people to approve, and wait for the answer; TimeoutError if none comes in time. The slot is given back.

    `title` and `details` are shown to them. `form`: a Pydantic model or dataclass whose fields they fill in. `role`:
    what a token needs to answer over HTTP and in the dashboard.
    """
    question = Question(name, title, details, role, form)
    return await drive(run().wait_for_approval(question, timeout=timeout, key=key))


@overload
async def gather(
    children: Iterable[Part[R]], /, *, name: str = ..., key: str | int | None = ..., if_cancelled: IfCancelled = ...
) -> list[R]: ...
@overload
async def gather(
    children: Iterable[Part[R]],
    /,
    *,
    when: Literal["settled"],
    name: str = ...,
    key: str | int | None = ...,
    if_cancelled: IfCancelled = ...,
) -> list[SettledTask[R]]: ...
@overload
async def gather(
    one: Part[R], two: Part[R2], /, *, name: str = ..., key: str | int | None = ..., if_cancelled: IfCancelled = ...
) -> tuple[R, R2]: ...
@overload
async def gather(
    one: Part[R],
    two: Part[R2],
    three: Part[R3],
    /,
    *,
    name: str = ...,
    key: str | int | None = ...,
    if_cancelled: IfCancelled = ...,
) -> tuple[R, R2, R3]: ...
@overload
async def gather(
    *children: Part[R], name: str = ..., key: str | int | None = ..., if_cancelled: IfCancelled = ...
) -> tuple[R, ...]: ...
async def gather(
    *children: Any,
    when: When = "all",
    name: str = "gather",
    key: str | int | None = None,
    if_cancelled: IfCancelled = "cancel",
) -> Any:
    """Run tasks side by side and wait for their results: `await gather(charge.s(1), ship.s(2))`.

    The slot is given back meanwhile. If one fails, TaskFailed is raised once all have ended; `when="settled"` returns
    `SettledTask` values instead. If this task fails or is cancelled, they are cancelled, or left alone:
    `if_cancelled="abandon"`.
    """
    return await drive(gathered(children, when, name, key, if_cancelled))


def gathered(
    children: Sequence[Any], when: When, name: str, key: str | int | None, if_cancelled: IfCancelled
) -> Steps[Any]:
    """`gather(a, b)` gives a tuple, `gather([a, b])` a list. Options are checked before anything is run."""
    is_list = len(children) == 1 and not isinstance(children[0], Signature | Submittable)
    parts: list[Any] = list(*children) if is_list else list(children)
    flow = ChildFlow.of(parts, settled=Policy(when).when == "settled", if_cancelled=if_cancelled) if parts else None

    def steps() -> Steps[Any]:
        results: Sequence[Any] = ()
        if flow is not None:
            results = flow.read((yield from run().gather(flow, name=name, key=key)))
        return list(results) if is_list else tuple(results)

    return steps()


async def patched(name: str) -> bool:
    """For changed code: False in a run that had got further than this before the change, else True; on record."""
    return await drive(run().patched(name))


def continue_as_new(**arguments: Any) -> NoReturn:
    """End this run and begin the task anew with other arguments, and nothing on record. Signals that wait are kept."""
    run().continue_as_new(arguments)


# ---- drivers ----


def checked_step(
    run: DurableRun, name: str, call: CallFunction, *, key: str | int | None, retries: int, transactional: bool
) -> Steps[Any]:
    if not callable(call.function):
        raise InvalidOption(
            f"step({name!r}, ...) takes the function and then its arguments, such as step({name!r}, charge, order), "
            f"not {call.function!r}."
        )
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise InvalidOption(f"retries of step {name!r} must be a whole number from 0 on, not {retries!r}.")
    return run.step(name, call, key=key, retries=retries, transactional=transactional)

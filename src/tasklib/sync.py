"""The module-level calls for synchronous code: `tasklib.sync.X(...)` where asynchronous code awaits `tasklib.X(...)`.

import tasklib

tasklib.init("postgresql://app@localhost/app")
task_id = tasklib.sync.submit_task(send_email, to="a@example.com")
task_id.result(timeout=10)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Literal, ParamSpec, TypeVar, TypeVarTuple, Unpack, cast, overload

from tasklib.client.calls import Calls
from tasklib.client.default import blocking
from tasklib.client.signatures import SyncRunSchedule, SyncSubmitMany, SyncSubmitTask, SyncWaitFor
from tasklib.tasks import durable
from tasklib.tasks.approvals import Approval, ApproverRole, Question
from tasklib.tasks.durable import Part
from tasklib.tasks.durable_driving import drive_blocking, run
from tasklib.tasks.durable_effects import (
    CallFunction,
)
from tasklib.tasks.flow_results import SettledTask
from tasklib.tasks.flows import When
from tasklib.tasks.gathering import IfCancelled

__all__ = [
    "approve",
    "backfill_schedule",
    "cancel_task",
    "change_schedule",
    "create_schedule",
    "delete_schedule",
    "explain_schedule",
    "gather",
    "get_schedule",
    "get_task",
    "list_approvals",
    "list_schedules",
    "list_tasks",
    "patched",
    "pause_schedule",
    "preview_schedule",
    "reject",
    "replay_task",
    "resume_schedule",
    "run_schedule",
    "signal",
    "sleep",
    "step",
    "submit_many",
    "submit_task",
    "wait_for",
    "wait_for_approval",
    "wait_for_signal",
]

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
R = TypeVar("R")
R2 = TypeVar("R2")

submit_task: SyncSubmitTask = cast("Any", blocking(Calls.submit_task))
submit_many: SyncSubmitMany = cast("Any", blocking(Calls.submit_many))
wait_for: SyncWaitFor = cast("Any", blocking(Calls.wait_for))
get_task = blocking(Calls.get_task)
list_tasks = blocking(Calls.list_tasks)
cancel_task = blocking(Calls.cancel_task)
replay_task = blocking(Calls.replay_task)
create_schedule = blocking(Calls.create_schedule)
list_schedules = blocking(Calls.schedules, "list_schedules")
get_schedule = blocking(Calls.get_schedule)
change_schedule = blocking(Calls.change_schedule)
pause_schedule = blocking(Calls.pause_schedule)
resume_schedule = blocking(Calls.resume_schedule)
run_schedule: SyncRunSchedule = cast("Any", blocking(Calls.run_schedule))
delete_schedule = blocking(Calls.delete_schedule)
backfill_schedule = blocking(Calls.backfill_schedule)
preview_schedule = blocking(Calls.preview_schedule)
explain_schedule = blocking(Calls.explain_schedule)
signal = blocking(Calls.signal)
list_approvals = blocking(Calls.approvals, "list_approvals")
approve = blocking(Calls.approve)
reject = blocking(Calls.reject)


# ---- in durable functions ----


@overload
def step(name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
@overload
def step(
    name: str,
    function: Callable[[Unpack[Ts]], R],
    /,
    *args: *Ts,
    key: str | int | None = ...,
    retries: int = ...,
    transactional: Literal[False] = ...,
) -> R: ...
@overload
def step(
    name: str,
    function: Callable[[Any, Unpack[Ts]], R],
    /,
    *args: *Ts,
    key: str | int | None = ...,
    retries: int = ...,
    transactional: Literal[True],
) -> R: ...
def step(  # type: ignore[misc]  # a function with parameters of these names is given as a partial
    name: str,
    function: Callable[..., Any],
    /,
    *args: Any,
    key: str | int | None = None,
    retries: int = 0,
    transactional: bool = False,
    **kwargs: Any,
) -> Any:
    """`tasklib.step` for sync functions."""
    call = CallFunction(function, args, kwargs)
    steps = durable.checked_step(run(), name, call, key=key, retries=retries, transactional=transactional)
    return drive_blocking(steps)


def sleep(duration: float | timedelta | datetime, *, name: str = "sleep", key: str | int | None = None) -> None:
    """`tasklib.sleep` for sync functions."""
    drive_blocking(run().sleep(duration, name=name, key=key))


def wait_for_signal(name: str, *, timeout: float | timedelta | None = None, key: str | int | None = None) -> Any:
    """`tasklib.wait_for_signal` for sync functions."""
    return drive_blocking(run().wait_for_signal(name, timeout=timeout, key=key))


@overload
def wait_for_approval(
    name: str,
    *,
    title: str = "",
    details: Any = None,
    role: ApproverRole = "approver",
    timeout: float | timedelta | None = None,
    key: str | int | None = None,
) -> Approval[None]: ...
@overload
def wait_for_approval(
    name: str,
    *,
    form: type[R],
    title: str = "",
    details: Any = None,
    role: ApproverRole = "approver",
    timeout: float | timedelta | None = None,
    key: str | int | None = None,
) -> Approval[R]: ...
def wait_for_approval(
    name: str,
    *,
    form: type[Any] | None = None,
    title: str = "",
    details: Any = None,
    role: ApproverRole = "approver",
    timeout: float | timedelta | None = None,
    key: str | int | None = None,
) -> Approval[Any]:
    """`tasklib.wait_for_approval` for sync functions."""
    question = Question(name, title, details, role, form)
    return drive_blocking(run().wait_for_approval(question, timeout=timeout, key=key))


@overload
def gather(
    children: Iterable[Part[R]], /, *, name: str = ..., key: str | int | None = ..., if_cancelled: IfCancelled = ...
) -> list[R]: ...
@overload
def gather(
    children: Iterable[Part[R]],
    /,
    *,
    when: Literal["settled"],
    name: str = ...,
    key: str | int | None = ...,
    if_cancelled: IfCancelled = ...,
) -> list[SettledTask[R]]: ...
@overload
def gather(
    one: Part[R], two: Part[R2], /, *, name: str = ..., key: str | int | None = ..., if_cancelled: IfCancelled = ...
) -> tuple[R, R2]: ...
@overload
def gather(
    *children: Part[R], name: str = ..., key: str | int | None = ..., if_cancelled: IfCancelled = ...
) -> tuple[R, ...]: ...
def gather(
    *children: Any,
    when: When = "all",
    name: str = "gather",
    key: str | int | None = None,
    if_cancelled: IfCancelled = "cancel",
) -> Any:
    """`tasklib.gather` for sync functions."""
    return drive_blocking(durable.gathered(children, when, name, key, if_cancelled))


def patched(name: str) -> bool:
    """`tasklib.patched` for sync functions."""
    return drive_blocking(run().patched(name))

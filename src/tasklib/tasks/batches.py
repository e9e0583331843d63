"""`@task(batch=Batch(...))`: the tasks that one worker runs at the same time share a call of the function.

Each task stays a task: it has its own row, lease, timeout, result and retries. Its attempt puts its argument into the
batch that is being gathered and waits for its own part of what the call returns. So workers and executors know nothing
of batches.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from tasklib.errors import InvalidTaskFunction
from tasklib.tasks.options import MAX_DELAY_SECONDS, MAX_INT
from tasklib.tasks.signature import hints_of

if TYPE_CHECKING:
    from tasklib.tasks.batch_calls import Gatherer

alone: ContextVar[bool] = ContextVar("tasklib_batches_of_one", default=False)
"""Set where no other task can come: in child processes and in inline mode."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Call the function with up to `max` tasks, `wait` seconds after the first of them began at the latest."""

    max: int = 100
    wait: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.max, bool) or not isinstance(self.max, int) or not 1 <= self.max <= MAX_INT:
            raise InvalidTaskFunction(f"Batch: max must be a whole number of at least 1, not {self.max!r}.")
        is_number = isinstance(self.wait, int | float) and not isinstance(self.wait, bool)
        if not is_number or not 0 <= self.wait <= MAX_DELAY_SECONDS:
            raise InvalidTaskFunction(f"Batch: wait must be a number of seconds from 0 on, not {self.wait!r}.")


def of_one(function: Callable[..., Any], batch: Batch, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """The function of one task: an async function of one item, which is called together with others."""
    if not isinstance(batch, Batch):
        raise InvalidTaskFunction(f"{name}: batch must be a Batch(...), not {batch!r}.")
    parameter, item, result = _shape(function, name)
    gatherer: Gatherer | None = None

    async def one(**arguments: Any) -> Any:
        nonlocal gatherer
        if gatherer is None:
            from tasklib.tasks.batch_calls import Gatherer  # imported here: programs that only submit need no asyncio

            gatherer = Gatherer(function, batch, name)
        return await gatherer.add(arguments[parameter])

    functools.update_wrapper(one, function)
    one.__annotations__ = {parameter: item, "return": result}
    taken = inspect.Parameter(parameter, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=item)
    vars(one)["__signature__"] = inspect.Signature([taken], return_annotation=result)
    return one


def executor_of_one(function: Callable[..., Any], executor: str | None, name: str) -> str | None:
    """The executor of the function of one task; the list is handed to a thread if the function is not async."""
    if executor == "process":
        raise InvalidTaskFunction(
            f"{name}: a batch can't run in a process: its tasks would be in different ones. Use a sync function, which "
            "runs in a thread, or let it start a process."
        )
    if executor == "loop" and not inspect.iscoroutinefunction(function):
        raise InvalidTaskFunction(f"{name}: executor='loop' needs an async function; this one would block the loop.")
    return None if executor == "thread" and not inspect.iscoroutinefunction(function) else executor


def refuse_with_batch(name: str, *, takes_connection: bool, durable: bool) -> None:
    if takes_connection:
        raise InvalidTaskFunction(
            f"{name}: a batch can't be transactional: its tasks succeed and fail one by one, and a transaction only as "
            "a whole. Open a connection in the function."
        )
    if durable:
        raise InvalidTaskFunction(f"{name}: a batch can't be durable: its tasks would be suspended together.")


def _shape(function: Callable[..., Any], name: str) -> tuple[str, Any, Any]:
    """The one parameter, the type of an item, and that of its result."""
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) != 1 or parameters[0].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        raise InvalidTaskFunction(
            f"{name}: the function of a batch takes one parameter, the list of its items: "
            f"def {name.rpartition('.')[2]}(items: list[Item])."
        )
    hints = hints_of(function, name)
    [parameter] = parameters
    hint = hints.get(parameter.name, list)
    if (get_origin(hint) or hint) not in (list, Sequence):
        raise InvalidTaskFunction(
            f"{name}: the parameter {parameter.name} of a batch's function must be a list, such as list[str], "
            f"not {hint!r}. Each task is submitted with one item of it."
        )
    return parameter.name, next(iter(get_args(hint)), Any), _result(hints.get("return", Any), name)


def _result(declared: Any, name: str) -> Any:
    """What one task results in, of what the function returns for all: errors are no results."""
    if declared is Any or declared is None or declared is NoneType:
        return declared
    if (get_origin(declared) or declared) not in (list, Sequence, tuple):
        raise InvalidTaskFunction(
            f"{name}: the function of a batch returns None, or a list with a result or an exception for each item, "
            f"not {declared!r}."
        )
    [each] = get_args(declared)[:1] or [Any]
    kinds = get_args(each) if get_origin(each) in (Union, UnionType) else (each,)
    results = [kind for kind in kinds if not _is_error(kind)]
    return functools.reduce(lambda a, b: a | b, results) if results else NoneType


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)

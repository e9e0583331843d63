"""Checks and conversions around a look-up, without input or output: for sync and async callers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from tasklib.errors import (
    DatabaseUnavailable,
    InvalidOption,
    ResultNotReadable,
    ServerUnavailable,
    TaskCancelled,
    TaskFailed,
    TaskLibError,
    TaskNotFound,
    WaitTimeout,
)
from tasklib.states import TaskState
from tasklib.store import lookup
from tasklib.tasks import registry
from tasklib.tasks.context import running_task
from tasklib.tasks.ids import Given

MAX_PAGE = 10_000
_FIRST_PAUSE, _PAUSE_GROWTH, _LONGEST_PAUSE = 0.01, 1.5, 0.5


def check_limit(limit: object, most: int | None) -> None:
    """Refuse what can't be the size of a page, or of a batch."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1 or (most is not None and limit > most):
        raise InvalidOption(f"limit must be {f'from 1 to {most}' if most else 'at least 1'}, not {limit!r}.")


def as_id(value: UUID | str) -> UUID:
    """A task id, also from its text form."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidOption(f"a task id is a UUID, not {value!r}.") from None


def check_ids(ids: Sequence[UUID], count: int) -> None:
    """Refuse ids that can't be those of so many new tasks."""
    if len(ids) != count:
        raise InvalidOption(f"there are {count} tasks, and {len(ids)} ids.")
    Given(ids)  # checks them


def known(task_id: UUID, outcome: lookup.Outcome | None) -> lookup.Outcome:
    """The outcome of a task that must exist."""
    if outcome is None:
        raise TaskNotFound.with_id(task_id)
    return outcome


def not_finished(task_id: UUID, outcome: lookup.Outcome | None) -> InvalidOption:
    state = known(task_id, outcome).state
    return InvalidOption(f"task {task_id} is {state}; only a completed, cancelled or dead_letter task can be replayed.")


def not_waiting(task_id: UUID, outcome: lookup.Outcome | None) -> InvalidOption:
    state = known(task_id, outcome).state
    return InvalidOption(
        f"task {task_id} is {state} and doesn't wait for its time; "
        "only a task with a start time or a retry in the future can be run now."
    )


def result_of(task_id: UUID, outcome: lookup.Outcome) -> Any:
    """The result of a task that is done, as JSON has it. Raises what else the task ended with."""
    match outcome.state:
        case TaskState.DEAD_LETTER:
            raise TaskFailed(task_id, outcome.name, outcome.error)
        case TaskState.CANCELLED:
            raise TaskCancelled(task_id, outcome.name, outcome.error)
    return outcome.result


def typed_result(task_id: UUID, outcome: lookup.Outcome) -> Any:
    """The same in the type that its function declares, if this program has the function."""
    value = result_of(task_id, outcome)
    function = registry.functions.get(outcome.name)
    if function is None:
        return value
    try:
        return function.results.from_json(value)
    except ValueError as e:
        raise ResultNotReadable(task_id, outcome.name, value, str(e)) from e


def pauses(timeout: float | None) -> Iterator[float | None]:
    """Read at once, then after growing pauses; the last read, when the time is up, is not followed by a pause."""
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0):
        raise InvalidOption(f"timeout must be 0 seconds or more, not {timeout!r}.")
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while deadline is None or (left := deadline - time.monotonic()) > 0:
        yield pause if deadline is None else min(pause, left)
        pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)
    yield None


class OutageTolerance:
    """Whether to keep waiting for a task while the database, or the server, can't be reached.

    With a timeout it is worth trying until then. Without one it is if the database was reached before: a program that
    is configured wrongly must hear of it.
    """

    def __init__(self, timeout: float | None) -> None:
        self._is_worth_it = timeout is not None

    @contextmanager
    def survived(self, *, is_last: bool = False) -> Iterator[None]:
        """Around each look. The last one, at the deadline, fails as it fails."""
        try:
            yield
        except (DatabaseUnavailable, ServerUnavailable):
            if is_last or not self._is_worth_it:
                raise
        else:
            self._is_worth_it = True


def still_waiting(task_id: UUID, outcome: lookup.Outcome | None, timeout: float | None) -> WaitTimeout:
    return WaitTimeout(task_id, outcome.state if outcome else "unknown", timeout or 0)


def refuse_to_wait_in_a_task(task_id: UUID) -> None:
    """A running task that waits for another one holds a slot meanwhile: if all do so, none of them ever ends."""
    context = running_task.get(None)
    if context is None:
        return
    name = context().name
    raise TaskLibError(
        f"{name} is running and would wait for task {task_id}, which has not ended. It would keep its slot meanwhile, "
        "and workers whose slots are full of waiting tasks never run the tasks that these wait for. Instead, write "
        "`await gather(other.s(...))` in a function with @task(durable=True): it is suspended while it waits. Or let "
        f"another task take over: chain({name}.s(...), next.s()), or spawned({name}.s(...)) for tasks that it spawns."
    )

"""What a running task may know and say about itself: `tasklib.current_task()`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from tasklib.tasks.payload import dump

running_task: ContextVar[Callable[[], TaskContext]] = ContextVar("tasklib_current_task")
"""Set in the asyncio task, thread or child process that runs a task; most tasks never call it."""


@dataclass(slots=True)
class TaskContext:
    """The attempt that is running here and now."""

    id: UUID
    name: str
    attempt: int
    """1 for the first try, 2 for the first retry, ..."""
    max_attempts: int
    token: int
    """The lease token: it grows with every claim of this task. Hand it to other systems as a fencing token."""
    queue: str
    worker_id: str
    deadline: float | None = None
    """When the timeout strikes, on the clock of time.monotonic(); None without a timeout."""
    trace_context: Mapping[str, str] | None = None
    """What the submission said, or the span it came from."""
    trace_id: str | None = None
    """The trace this attempt is part of, as 32 hexadecimal digits."""
    schedule: str | None = None
    """The name of the schedule that this is a run of."""
    slot: datetime | None = None
    """The slot of the schedule, the instant it runs for; None if the run was asked for by hand."""
    _report: Callable[[str], None] | None = field(default=None, repr=False)
    _cancelled: bool = False

    @property
    def cancelled(self) -> bool:
        """True once the attempt should stop: it was cancelled, timed out, or lost its lease. Threads must look."""
        return self._cancelled

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the timeout, or None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def logger(self) -> Any:
        """A structlog logger that names this task in every line."""
        import structlog  # imported here: it takes a tenth of a second that most programs never need

        traced = {"trace_id": self.trace_id} if self.trace_id else {}
        return structlog.get_logger("tasklib.task").bind(
            task_id=str(self.id), task=self.name, attempt=self.attempt, worker=self.worker_id, **traced
        )

    def progress(self, value: Any) -> None:
        """Store any JSON value as `task.progress`. Cheap to call often: only the newest is written, now and then."""
        text = dump(value)
        if self._report is not None:
            self._report(text)

    def cancel(self) -> None:
        """Request the attempt to stop; used by the worker."""
        self._cancelled = True


def current_task() -> TaskContext:
    """The context of the task that is running here; RuntimeError outside of one."""
    try:
        context = running_task.get()
    except LookupError:
        raise RuntimeError("current_task() was called outside of a running task.") from None
    return context()


class LeaveRun(BaseException):
    """Raised in a durable function to leave this run of it; more in `durable_run.py`."""


def leaving(error: BaseException) -> LeaveRun | None:
    """Whether an error means that, alone or from several branches together."""
    kind = type(error)  # isinstance asks the exception itself, and an odd one raises then
    if issubclass(kind, LeaveRun):
        return cast("LeaveRun", error)
    if kind in (ExceptionGroup, BaseExceptionGroup):
        leaves, rest = cast("BaseExceptionGroup[BaseException]", error).split(LeaveRun)
        return leaving(leaves.exceptions[0]) if leaves is not None and rest is None else None
    return None

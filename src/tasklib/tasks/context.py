"""What a running task may know and say about itself: `tasklib.current_task()`."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast
from uuid import UUID

if TYPE_CHECKING:
    from tasklib.tasks.flow_parts import Signature
    from tasklib.tasks.limit_blocks import LimitBlock
    from tasklib.tasks.task_id import SyncTaskId, TaskId

T = TypeVar("T")
K = TypeVar("K", str, int, "str | int")

running_task: ContextVar[Callable[[], TaskContext]] = ContextVar("tasklib_current_task")
"""Set in the asyncio task, thread or child process that runs a task; most tasks never call it."""

process_state: ContextVar[SimpleNamespace | None] = ContextVar("tasklib_process_state", default=None)
"""Set once in each worker and child; attempts run in copies of its context."""


class LimitBlockCalls(Protocol):
    """What blocks behind limits ask of the worker: with a database or over HTTP, and from child processes."""

    async def enter_limit(self, wanted: LimitBlock, nested: int) -> int:
        """Wait for a place, or a start, of a limit; what `leave_limit` takes."""
        ...

    async def leave_limit(self, wanted: LimitBlock, block: int) -> None: ...
    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out one of the calls for a sync function, in its thread."""
        ...


class WorkerCalls(Protocol):
    """What a running task asks of a worker with a database, over the worker's own connection."""

    async def node_results(self, source: Mapping[str, Any], after: str | None, limit: int) -> list[tuple[str, Any]]: ...
    async def spawn(self, children: Sequence[tuple[UUID, Signature[Any]]]) -> None: ...
    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out one of the calls for a sync function, in its thread."""
        ...


class AttemptsCalls(LimitBlockCalls, Protocol):
    """All that one attempt can ask."""

    @property
    def of_database(self) -> WorkerCalls | None:
        """None: its worker has no database."""
        ...


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
    payload_version: int | None = None
    """The version in which the arguments were stored; None for a function without versions."""
    priority: int = 0
    """Of the task, without what waiting has added."""
    _arguments: str = field(default="{}", repr=False)
    """As JSON text, opened: what they hide is masked in log lines."""
    _mask: Callable[[str], str] | Literal["unknown"] | None = field(default="unknown", repr=False)
    """What masks it, made when it is needed first: see masking.py."""
    _report: Callable[[str], None] | None = field(default=None, repr=False)
    _calls: WorkerCalls | None = field(default=None, repr=False)
    """None where there is no worker with a database: in child processes and over HTTP."""
    _limits: LimitBlockCalls | None = field(default=None, repr=False)
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
    def state(self) -> Any:
        """What the hooks of `on_startup` have put there, in this worker or child process."""
        return process_state.get() or SimpleNamespace()

    @property
    def logger(self) -> Any:
        """A structlog logger that names this task in every line."""
        import structlog  # imported here: it takes a tenth of a second that most programs never need

        return structlog.get_logger("tasklib.task").bind(**log_fields(self))

    def progress(self, value: Any) -> None:
        """Store any JSON value as `task.progress`. Cheap to call often: only the newest is written, now and then."""
        from tasklib.tasks.payload import dump  # which knows of dependencies, and they of this

        text = dump(value)
        if self._report is not None:
            self._report(text)

    async def spawn(self, child: Signature[T], /, *, key: str | int) -> TaskId[T]:
        """Add a task while this one runs: `await current_task().spawn(fetch.s(url), key=url)`.

        Its id is made of this task's id and the key, so an attempt that is repeated adds nothing twice.
        """
        return (await self.spawn_many({key: child}))[key]

    async def spawn_many(self, children: Mapping[K, Signature[T]], /) -> dict[K, TaskId[T]]:
        """Add many tasks, by key: much faster than one by one."""
        from tasklib.tasks.spawning import prepared  # imported here: most tasks never do
        from tasklib.tasks.task_id import TaskId

        calls, spawned = prepared(self, children)
        await calls.spawn(list(spawned.values()))
        return {key: TaskId(id_) for key, (id_, _) in spawned.items()}

    def spawn_sync(self, child: Signature[T], /, *, key: str | int) -> SyncTaskId[T]:
        """`spawn` for sync functions."""
        return self.spawn_many_sync({key: child})[key]

    def spawn_many_sync(self, children: Mapping[K, Signature[T]], /) -> dict[K, SyncTaskId[T]]:
        """`spawn_many` for sync functions."""
        from tasklib.tasks.spawning import prepared
        from tasklib.tasks.task_id import SyncTaskId

        calls, spawned = prepared(self, children)
        calls.wait(calls.spawn(list(spawned.values())))
        return {key: SyncTaskId(id_) for key, (id_, _) in spawned.items()}

    def cancel(self) -> None:
        """Request the attempt to stop; used by the worker."""
        self._cancelled = True


def log_fields(context: TaskContext) -> dict[str, Any]:
    """The keys that name a task in a log line."""
    fields = {
        "task_id": str(context.id),
        "task": context.name,
        "attempt": context.attempt,
        "worker": context.worker_id,
    }
    return {**fields, "trace_id": context.trace_id} if context.trace_id else fields


def current_task() -> TaskContext:
    """The context of the task that is running here; RuntimeError outside of one."""
    try:
        context = running_task.get()
    except LookupError:
        raise RuntimeError("current_task() was called outside of a running task.") from None
    return context()


def worker_calls() -> WorkerCalls | None:
    """What the task that is running here can ask its worker; None where there is none to ask."""
    context = running_task.get(None)
    return None if context is None else context()._calls


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

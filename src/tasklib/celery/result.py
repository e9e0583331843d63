"""`AsyncResult` and its like: what becomes of a task, read from its row."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tasklib.celery import states
from tasklib.celery.exceptions import CeleryTimeoutError, TaskRevokedError
from tasklib.celery.failures import exception_of, is_expired, upstream_of
from tasklib.celery.lineage import children_of
from tasklib.celery.result_sets import CeleryGroupResult, CeleryResultBase, CeleryResultSet
from tasklib.celery.result_sets import EagerResult as EagerResult
from tasklib.celery.values import revived
from tasklib.client.default import default_client
from tasklib.errors import TaskCancelled, TaskFailed, WaitTimeout
from tasklib.states import TaskState
from tasklib.tasks.context import running_task

if TYPE_CHECKING:
    from tasklib.models import Task

_may_wait: ContextVar[bool] = ContextVar("tasklib_celery_may_wait", default=False)


@contextmanager
def allow_join_result() -> Iterator[None]:
    """Inside the block, a task may wait for another. Workers whose slots are full of such tasks stand still."""
    token = _may_wait.set(True)
    try:
        yield
    finally:
        _may_wait.reset(token)


class CeleryResult(CeleryResultBase):
    """The result of one task: `AsyncResult(id)`."""

    def __init__(
        self, id: Any, backend: Any = None, task_name: Any = None, app: Any = None, parent: Any = None
    ) -> None:
        if id is None:
            raise ValueError(f"AsyncResult requires valid id, not {type(id)}")
        self.id = str(id)
        self.app = app
        self.parent = parent
        self._settled: Task | None = None

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self.id

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    def __str__(self) -> str:
        return self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> bool:
        return other.id == self.id if isinstance(other, CeleryResult) else other == self.id

    def __copy__(self) -> CeleryResult:
        return CeleryResult(self.id, app=self.app, parent=self.parent)

    def __reduce__(self) -> Any:
        return CeleryResult, (self.id, None, None, None, self.parent)

    def __json__(self) -> Any:
        return self.as_tuple()

    def as_tuple(self) -> tuple[Any, Any]:
        """Ids, as `result_from_tuple` takes them."""
        return (self.id, self.parent and self.parent.as_tuple()), None

    def as_list(self) -> list[str]:
        """The ids of this task and those before it."""
        return [self.id, *(self.parent.as_list() if isinstance(self.parent, CeleryResult) else ())]

    # ---- waiting ----

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.5,
        no_ack: bool = True,
        follow_parents: bool = True,
        callback: Any = None,
        on_message: Any = None,
        on_interval: Any = None,
        disable_sync_subtasks: bool = True,
        EXCEPTION_STATES: Any = states.EXCEPTION_STATES,
        PROPAGATE_STATES: Any = states.PROPAGATE_STATES,
    ) -> Any:
        """Wait until the task is done and return its result. Raises what the task raised."""
        wait = partial(_waiting, self.id, allowed=not disable_sync_subtasks)
        try:
            value = revived(wait(timeout) if on_message is None else self._tell(on_message, wait, timeout, interval))
        except WaitTimeout as e:
            raise CeleryTimeoutError("The operation timed out.") from e
        except (TaskFailed, TaskCancelled) as e:
            error = self._error()
            if propagate:
                raise error from e
            return error
        if callback is not None:
            callback(self.id, value)
        return value

    wait = get

    def _tell(self, on_message: Any, wait: Any, timeout: float | None, interval: float) -> Any:
        """Wait for the task, and call the function with each state that is seen on the way."""
        until = None if timeout is None else time.monotonic() + timeout
        told: Any = None
        while True:
            left = interval if until is None else min(interval, until - time.monotonic())
            try:
                value = wait(max(0.0, left))
            except (TaskFailed, TaskCancelled):
                on_message(self._message())
                raise
            except WaitTimeout:
                if until is not None and time.monotonic() >= until:
                    raise
                now = self._message()
                if now["status"] not in (states.PENDING, states.STARTED) and now != told:
                    on_message(told := now)
            else:
                on_message(self._message())
                return value

    def _message(self) -> dict[str, Any]:
        return {
            "task_id": self.id,
            "status": self.state,
            "result": self.result,
            "traceback": self.traceback,
            "children": [],
        }

    def throw(self, *_: Any, **named: Any) -> Any:
        """Wait, and raise what the task raised."""
        return self.get(propagate=True, timeout=named.get("timeout"))

    def maybe_throw(self, propagate: bool = True, callback: Any = None) -> Any:
        """The result; raises what the task raised, if it has failed."""
        found = self.result
        if propagate and self.state in states.PROPAGATE_STATES:
            raise found
        if callback is not None:
            callback(self.id, found)
        return found

    maybe_reraise = maybe_throw

    # ---- looking ----

    def _row(self) -> Task | None:
        if self._settled is not None:
            return self._settled
        try:
            task_id = UUID(self.id)
        except ValueError:
            return None
        found = default_client().get_task(task_id)
        if found is not None and found.state in (TaskState.COMPLETED, TaskState.DEAD_LETTER, TaskState.CANCELLED):
            self._settled = found
        return found

    def _error(self) -> BaseException:
        row = self._row()
        assert row is not None
        if row.state == TaskState.CANCELLED:
            culprit = upstream_of(row.error)
            return CeleryResult(culprit)._error() if culprit else TaskRevokedError("revoked")
        return exception_of(row.error)

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE, REVOKED, or what the task reported with `update_state`."""
        row = self._row()
        if row is None:
            return states.PENDING
        if row.state == TaskState.RUNNING and (reported := _reported(row)):
            return str(reported["state"])
        if row.state == TaskState.DEAD_LETTER and is_expired(row.error):
            return states.REVOKED
        if row.state == TaskState.CANCELLED and upstream_of(row.error):
            return states.FAILURE
        return states.OF_TASKLIB[TaskState(row.state)]

    status = state

    @property
    def result(self) -> Any:
        """The result, the exception, or what the task reported last."""
        row = self._row()
        if row is None or row.state == TaskState.PENDING:
            return None
        if row.state in (TaskState.DEAD_LETTER, TaskState.CANCELLED):
            return self._error()
        if row.state == TaskState.FAILED:
            return exception_of(row.error)
        if row.state == TaskState.COMPLETED:
            return revived(row.result)
        reported = _reported(row)
        return revived(reported["meta"]) if reported else None

    info = result

    @property
    def traceback(self) -> str | None:
        """Of the last attempt that failed."""
        row = self._row()
        return None if row is None else row.error

    def ready(self) -> bool:
        """Whether the task has ended."""
        return self.state in states.READY_STATES

    def successful(self) -> bool:
        """Whether it has ended well."""
        return self.state == states.SUCCESS

    def failed(self) -> bool:
        """Whether it has failed for good."""
        return self.state == states.FAILURE

    def exists(self) -> bool:
        """Whether there is such a task."""
        return self._row() is not None

    ignored = False

    @property
    def children(self) -> list[Any]:
        """The tasks that wait for this one: callbacks, and what comes next in its canvas."""
        row = self._row()
        groups = [] if row is None else children_of(self.id, row.flow)
        made = [(group, [CeleryResult(id_, app=self.app, parent=self) for id_ in ids]) for group, ids in groups]
        return [each[0] if group is None else CeleryGroupResult(group, each, parent=self) for group, each in made]

    @property
    def date_done(self) -> Any:
        """When it ended."""
        return self._column("completed_at")

    @property
    def name(self) -> Any:
        """The name of its function."""
        return self._column("name")

    @property
    def queue(self) -> Any:
        """Its queue."""
        return self._column("queue")

    @property
    def worker(self) -> Any:
        """The worker that runs it."""
        return self._column("worker_id")

    @property
    def retries(self) -> Any:
        """How often it was retried."""
        return self._column("retry_count")

    @property
    def args(self) -> Any:
        """Its arguments without names."""
        return (self._column("kwargs") or {}).get("_args", [])

    @property
    def kwargs(self) -> Any:
        """Its arguments by name."""
        return {k: revived(v) for k, v in (self._column("kwargs") or {}).items() if not k.startswith("_")}

    def _column(self, name: str) -> Any:
        row = self._row()
        return None if row is None else getattr(row, name)

    # ---- stopping ----

    def revoke(
        self,
        connection: Any = None,
        terminate: bool = False,
        signal: Any = None,
        wait: bool = False,
        timeout: Any = None,
    ) -> None:
        """Cancel the task; if it runs, its worker is asked to stop it."""
        default_client().cancel_task(self.id)


def result_from_tuple(r: Any, app: Any = None) -> Any:
    """The result that `as_tuple` was called on."""
    if isinstance(r, CeleryResultBase):
        return r
    (id_, parent), nested = r if isinstance(r[0], list | tuple) else ((r[0], None), r[1])
    before = None if not parent else result_from_tuple(parent, app)
    if nested is None:
        return CeleryResult(id_, app=app, parent=before)
    return CeleryGroupResult(id_, [result_from_tuple(each, app) for each in nested], parent=before, app=app)


def _waiting(task_id: str, timeout: float | None, /, *, allowed: bool) -> Any:
    client = default_client()

    def wait() -> Any:
        return client.perform(client.calls.wait_for_json(task_id, timeout))

    if running_task.get(None) is None:
        return wait()
    if not (allowed or _may_wait.get()):
        raise RuntimeError(
            "Never call result.get() within a task! The task keeps its slot meanwhile, and workers whose slots "
            "are full of waiting tasks never run those that these wait for. Write chain(this.s(), next.s()) instead."
        )
    return Context().run(wait)  # there no task is running


def _reported(row: Task) -> Any:
    progress = row.progress
    return progress if isinstance(progress, dict) and progress.keys() == {"state", "meta"} else None


AsyncResult, ResultBase = CeleryResult, CeleryResultBase
GroupResult, ResultSet = CeleryGroupResult, CeleryResultSet
"""As Celery calls them."""

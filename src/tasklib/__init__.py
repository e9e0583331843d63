"""TaskLib: a durable task queue for Python whose only server is PostgreSQL.

import tasklib
from tasklib import task

@task(max_retries=5)
async def send_email(to: str) -> None: ...

tasklib.init("postgresql://app@localhost/app")
task_id = await send_email.submit(to="a@example.com")
await task_id.result(timeout=10)
"""

import typing

from tasklib import sync
from tasklib.client.clients import AsyncClient, Client
from tasklib.client.default import (
    cancel_task,
    close,
    get_task,
    init,
    list_tasks,
    replay_task,
    submit_many,
    submit_task,
    wait_for,
)
from tasklib.config import Config
from tasklib.errors import (
    AccessDenied,
    ConfigError,
    DatabaseUnavailable,
    IdempotencyKeyTaken,
    InvalidOption,
    InvalidTaskFunction,
    NotInitialized,
    ResultNotReadable,
    ResultNotStorable,
    ScheduleNotFound,
    SchemaError,
    ServerUnavailable,
    TaskCancelled,
    TaskExecutionError,
    TaskFailed,
    TaskLibError,
    TaskNotFound,
    TaskTimeout,
    TokenNotFound,
    UnexpectedAnswer,
    WaitTimeout,
    WorkerLost,
    WorkerNotFound,
)
from tasklib.priorities import effective_priority
from tasklib.schedules import Schedule
from tasklib.states import (
    TaskState,
    is_cancelled,
    is_completed,
    is_dead_letter,
    is_failed,
    is_pending,
    is_running,
    is_terminal,
)
from tasklib.store.filters import DeadLetterFilter, TaskFilter
from tasklib.tasks.context import TaskContext, current_task
from tasklib.tasks.function import TaskFunction, task
from tasklib.tasks.options import SubmitOptions
from tasklib.tasks.retry import Reject, Retry, RetryPolicy
from tasklib.tasks.task_id import SyncTaskId, TaskId
from tasklib.worker.worker import Worker

if typing.TYPE_CHECKING:
    from tasklib.models import Task

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "AsyncClient",
    "Client",
    "Config",
    "ConfigError",
    "DatabaseUnavailable",
    "DeadLetterFilter",
    "IdempotencyKeyTaken",
    "InvalidOption",
    "InvalidTaskFunction",
    "NotInitialized",
    "Reject",
    "ResultNotReadable",
    "ResultNotStorable",
    "Retry",
    "RetryPolicy",
    "Schedule",
    "ScheduleNotFound",
    "SchemaError",
    "ServerUnavailable",
    "SubmitOptions",
    "SyncTaskId",
    "Task",
    "TaskCancelled",
    "TaskContext",
    "TaskExecutionError",
    "TaskFailed",
    "TaskFilter",
    "TaskFunction",
    "TaskId",
    "TaskLibError",
    "TaskNotFound",
    "TaskState",
    "TaskTimeout",
    "TokenNotFound",
    "UnexpectedAnswer",
    "WaitTimeout",
    "Worker",
    "WorkerLost",
    "WorkerNotFound",
    "cancel_task",
    "close",
    "current_task",
    "effective_priority",
    "get_task",
    "init",
    "is_cancelled",
    "is_completed",
    "is_dead_letter",
    "is_failed",
    "is_pending",
    "is_running",
    "is_terminal",
    "list_tasks",
    "replay_task",
    "submit_many",
    "submit_task",
    "sync",
    "task",
    "wait_for",
]


if not typing.TYPE_CHECKING:  # type checkers would take any name for one that it may know

    def __getattr__(name: str) -> typing.Any:
        """`Task` when it is asked for: SQLModel takes longer to import than all the rest together."""
        if name == "Task":
            from tasklib.models import Task

            globals()["Task"] = Task
            return Task
        if name.endswith("_sync") and name.removesuffix("_sync") in sync.__all__:
            raise AttributeError(f"tasklib.{name} is called tasklib.sync.{name.removesuffix('_sync')}.")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

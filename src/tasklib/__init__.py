"""TaskLib: a durable task queue for Python whose only server is PostgreSQL.

import tasklib
from tasklib import task

@task(max_retries=5)
async def send_email(to: str) -> None: ...

tasklib.init("postgresql://app@localhost/app")
task_id = await tasklib.submit_task(send_email, to="a@example.com")
"""

import typing

from tasklib.client.clients import AsyncClient, Client
from tasklib.client.default import (
    cancel_task,
    cancel_task_sync,
    close,
    get_task,
    get_task_sync,
    init,
    list_tasks,
    list_tasks_sync,
    replay_task,
    replay_task_sync,
    submit_many,
    submit_many_sync,
    submit_task,
    submit_task_sync,
    wait_for,
    wait_for_sync,
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
    ResultNotStorable,
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
from tasklib.tasks.retry import Reject, Retry, RetryPolicy
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
    "ResultNotStorable",
    "Retry",
    "RetryPolicy",
    "SchemaError",
    "ServerUnavailable",
    "Task",
    "TaskCancelled",
    "TaskContext",
    "TaskExecutionError",
    "TaskFailed",
    "TaskFilter",
    "TaskFunction",
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
    "cancel_task_sync",
    "close",
    "current_task",
    "effective_priority",
    "get_task",
    "get_task_sync",
    "init",
    "is_cancelled",
    "is_completed",
    "is_dead_letter",
    "is_failed",
    "is_pending",
    "is_running",
    "is_terminal",
    "list_tasks",
    "list_tasks_sync",
    "replay_task",
    "replay_task_sync",
    "submit_many",
    "submit_many_sync",
    "submit_task",
    "submit_task_sync",
    "task",
    "wait_for",
    "wait_for_sync",
]


def __getattr__(name: str) -> typing.Any:
    """`Task` when it is asked for: SQLModel takes longer to import than all the rest together."""
    if name == "Task":
        from tasklib.models import Task

        globals()["Task"] = Task
        return Task
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

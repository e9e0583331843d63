"""TaskLib: a durable task queue for Python whose only server is PostgreSQL.

import tasklib
from tasklib import task

@task(max_retries=5)
async def send_email(to: str) -> None: ...

tasklib.init("postgresql://app@localhost/app")
task_id = await send_email.submit(to="a@example.com")
await task_id.result(timeout=10)
"""

import importlib
import os
import typing

from tasklib.config import Config, PayloadStore
from tasklib.errors import (
    AccessDenied,
    ApprovalNotOpen,
    ConfigError,
    DatabaseUnavailable,
    DuplicateTask,
    FlowNotFound,
    IdempotencyKeyTaken,
    InvalidOption,
    InvalidTaskFunction,
    KeyMissing,
    LimitNotFound,
    LimitTimeout,
    NotInitialized,
    PayloadDamaged,
    PayloadUnreadable,
    QueueFull,
    ReplayNotFound,
    ResultNotReadable,
    ResultNotStorable,
    ScheduleNotFound,
    SchemaError,
    ServerUnavailable,
    TaskCancelled,
    TaskExecutionError,
    TaskFailed,
    TaskLibError,
    TaskNotEditable,
    TaskNotFound,
    TaskTimeout,
    TokenNotFound,
    UnexpectedAnswer,
    WaitTimeout,
    WorkerLost,
    WorkerNotFound,
)
from tasklib.priorities import effective_priority
from tasklib.shards import Shard
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
from tasklib.tasks.context import TaskContext, current_task
from tasklib.tasks.default_client import load_default_client_with
from tasklib.tasks.function import TaskFunction, task
from tasklib.tasks.options import SubmitOptions
from tasklib.tasks.retry import Reject, Retry, RetryPolicy, Throttled
from tasklib.tasks.task_id import SyncTaskId, TaskId

if typing.TYPE_CHECKING:
    from tasklib import sync
    from tasklib.client.async_clients import AsyncClient
    from tasklib.client.clients import Client
    from tasklib.client.default import (
        approve,
        backfill_schedule,
        cancel_task,
        change_schedule,
        close,
        create_schedule,
        delete_schedule,
        explain_schedule,
        get_schedule,
        get_task,
        init,
        list_approvals,
        list_schedules,
        list_tasks,
        pause_schedule,
        preview_schedule,
        reject,
        replay_task,
        resume_schedule,
        run_schedule,
        signal,
        submit_many,
        submit_task,
        wait_for,
    )
    from tasklib.models import Task
    from tasklib.schedules import Schedule
    from tasklib.store.filters import DeadLetterFilter, TaskFilter
    from tasklib.tasks.approvals import Approval
    from tasklib.tasks.batches import Batch
    from tasklib.tasks.breakers import Breaker
    from tasklib.tasks.dependencies import Depends
    from tasklib.tasks.durable import (
        continue_as_new,
        gather,
        patched,
        sleep,
        step,
        wait_for_approval,
        wait_for_signal,
    )
    from tasklib.tasks.flow_results import Results, SettledTask
    from tasklib.tasks.flow_shapes import chain, group, spawned
    from tasklib.tasks.flows import Flow
    from tasklib.tasks.hooks import around_attempts, around_submissions, on_event, on_shutdown, on_startup
    from tasklib.tasks.limit_blocks import limit
    from tasklib.tasks.limits import Limit, queue
    from tasklib.tasks.payload_stores import FileStore, S3Store
    from tasklib.tasks.sealing import Sealed
    from tasklib.tasks.secrets import Hidden
    from tasklib.tasks.serializers import accept_content, register_serializer
    from tasklib.worker.worker import Worker

__version__ = "0.1.0"

if os.path.exists(os.path.join(os.path.dirname(__file__), "serializing.py")):
    # Another program's file among ours: both distributions are installed into one directory.
    raise ImportError(
        "the distribution `tasklib`, a library for Taskwarrior, is installed over `tasklib-pg`. They can't be in one "
        "environment: pip uninstall tasklib tasklib-pg, then pip install tasklib-pg."
    )

__all__ = [
    "AccessDenied",
    "Approval",
    "ApprovalNotOpen",
    "AsyncClient",
    "Batch",
    "Breaker",
    "Client",
    "Config",
    "ConfigError",
    "DatabaseUnavailable",
    "DeadLetterFilter",
    "Depends",
    "DuplicateTask",
    "FileStore",
    "Flow",
    "FlowNotFound",
    "Hidden",
    "IdempotencyKeyTaken",
    "InvalidOption",
    "InvalidTaskFunction",
    "KeyMissing",
    "Limit",
    "LimitNotFound",
    "LimitTimeout",
    "NotInitialized",
    "PayloadDamaged",
    "PayloadStore",
    "PayloadUnreadable",
    "QueueFull",
    "Reject",
    "ReplayNotFound",
    "ResultNotReadable",
    "ResultNotStorable",
    "Results",
    "Retry",
    "RetryPolicy",
    "S3Store",
    "Schedule",
    "ScheduleNotFound",
    "SchemaError",
    "Sealed",
    "ServerUnavailable",
    "SettledTask",
    "Shard",
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
    "TaskNotEditable",
    "TaskNotFound",
    "TaskState",
    "TaskTimeout",
    "Throttled",
    "TokenNotFound",
    "UnexpectedAnswer",
    "WaitTimeout",
    "Worker",
    "WorkerLost",
    "WorkerNotFound",
    "accept_content",
    "approve",
    "around_attempts",
    "around_submissions",
    "backfill_schedule",
    "cancel_task",
    "chain",
    "change_schedule",
    "close",
    "continue_as_new",
    "create_schedule",
    "current_task",
    "delete_schedule",
    "effective_priority",
    "explain_schedule",
    "gather",
    "get_schedule",
    "get_task",
    "group",
    "init",
    "is_cancelled",
    "is_completed",
    "is_dead_letter",
    "is_failed",
    "is_pending",
    "is_running",
    "is_terminal",
    "limit",
    "list_approvals",
    "list_schedules",
    "list_tasks",
    "on_event",
    "on_shutdown",
    "on_startup",
    "patched",
    "pause_schedule",
    "preview_schedule",
    "queue",
    "register_serializer",
    "reject",
    "replay_task",
    "resume_schedule",
    "run_schedule",
    "signal",
    "sleep",
    "spawned",
    "step",
    "submit_many",
    "submit_task",
    "sync",
    "task",
    "wait_for",
    "wait_for_approval",
    "wait_for_signal",
]


# Imported when first asked for: a module that only defines tasks needs neither a driver nor a worker nor SQLModel.
_LATER = {
    "Approval": "tasklib.tasks.approvals",
    "AsyncClient": "tasklib.client.async_clients",
    "Batch": "tasklib.tasks.batches",
    "Client": "tasklib.client.clients",
    "DeadLetterFilter": "tasklib.store.filters",
    "Depends": "tasklib.tasks.dependencies",
    "Flow": "tasklib.tasks.flows",
    "Breaker": "tasklib.tasks.breakers",
    "Limit": "tasklib.tasks.limits",
    "Results": "tasklib.tasks.flow_results",
    "Schedule": "tasklib.schedules",
    "FileStore": "tasklib.tasks.payload_stores",
    "S3Store": "tasklib.tasks.payload_stores",
    "Sealed": "tasklib.tasks.sealing",
    "accept_content": "tasklib.tasks.serializers",
    "register_serializer": "tasklib.tasks.serializers",
    "Hidden": "tasklib.tasks.secrets",
    "SettledTask": "tasklib.tasks.flow_results",
    "Task": "tasklib.models",
    "TaskFilter": "tasklib.store.filters",
    "Worker": "tasklib.worker.worker",
    "approve": "tasklib.client.default",
    "around_attempts": "tasklib.tasks.hooks",
    "around_submissions": "tasklib.tasks.hooks",
    "backfill_schedule": "tasklib.client.default",
    "cancel_task": "tasklib.client.default",
    "chain": "tasklib.tasks.flow_shapes",
    "change_schedule": "tasklib.client.default",
    "close": "tasklib.client.default",
    "continue_as_new": "tasklib.tasks.durable",
    "create_schedule": "tasklib.client.default",
    "delete_schedule": "tasklib.client.default",
    "explain_schedule": "tasklib.client.default",
    "gather": "tasklib.tasks.durable",
    "get_schedule": "tasklib.client.default",
    "get_task": "tasklib.client.default",
    "group": "tasklib.tasks.flow_shapes",
    "init": "tasklib.client.default",
    "limit": "tasklib.tasks.limit_blocks",
    "list_approvals": "tasklib.client.default",
    "list_schedules": "tasklib.client.default",
    "list_tasks": "tasklib.client.default",
    "on_event": "tasklib.tasks.hooks",
    "on_shutdown": "tasklib.tasks.hooks",
    "on_startup": "tasklib.tasks.hooks",
    "patched": "tasklib.tasks.durable",
    "pause_schedule": "tasklib.client.default",
    "preview_schedule": "tasklib.client.default",
    "reject": "tasklib.client.default",
    "queue": "tasklib.tasks.limits",
    "replay_task": "tasklib.client.default",
    "resume_schedule": "tasklib.client.default",
    "run_schedule": "tasklib.client.default",
    "signal": "tasklib.client.default",
    "sleep": "tasklib.tasks.durable",
    "spawned": "tasklib.tasks.flow_shapes",
    "step": "tasklib.tasks.durable",
    "submit_many": "tasklib.client.default",
    "submit_task": "tasklib.client.default",
    "wait_for": "tasklib.client.default",
    "wait_for_approval": "tasklib.tasks.durable",
    "wait_for_signal": "tasklib.tasks.durable",
}

load_default_client_with(lambda: importlib.import_module("tasklib.client.default"))

if not typing.TYPE_CHECKING:  # type checkers would take any name for one that it may know

    def __getattr__(name: str) -> typing.Any:
        if name == "sync":
            return importlib.import_module("tasklib.sync")
        if module := _LATER.get(name):
            value = globals()[name] = getattr(importlib.import_module(module), name)
            return value
        if name.endswith("_sync") and (call := name.removesuffix("_sync")) in __getattr__("sync").__all__:
            raise AttributeError(f"tasklib.{name} is called tasklib.sync.{call}.")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

"""The public names, pinned: adding or removing one is a decision, and shows up here."""

from __future__ import annotations

import inspect
import re

import pytest

import tasklib
from tasklib import errors, exceptions
from tasklib.columns import TASK_COLUMNS

PUBLIC = [
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


def test_the_public_names_are_these() -> None:
    assert sorted(tasklib.__all__) == PUBLIC


def test_every_public_name_exists_and_is_documented() -> None:
    assert [name for name in tasklib.__all__ if not inspect.getdoc(getattr(tasklib, name))] == []


def test_nothing_else_is_imported_under_a_public_name() -> None:
    for name in tasklib.__all__:
        getattr(tasklib, name)  # some come when they are asked for
    imported = {
        name for name, value in vars(tasklib).items() if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert imported | {"sync"} == {*tasklib.__all__, "load_default_client_with"}


def test_the_errors_are_public_here_and_in_exceptions() -> None:
    defined = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}
    assert defined == set(errors.__all__) == set(exceptions.__all__) <= set(tasklib.__all__)
    assert all(getattr(exceptions, name) is getattr(tasklib, name) for name in defined)


def test_the_tree_of_errors_is_the_one_in_the_docstring() -> None:
    drawn = re.findall(r"[├└]── (\w+)(?: \((\w+)\))?", errors.__doc__ or "")
    defined = [
        (name, next((base.__name__ for base in value.__bases__ if base is not errors.TaskLibError), ""))
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.TaskLibError) and value is not errors.TaskLibError
    ]
    assert drawn == defined


def test_each_call_of_sync_is_an_awaitable_one_of_tasklib() -> None:
    calls = {name: getattr(tasklib, name) for name in PUBLIC}
    awaitable = {name for name, call in calls.items() if getattr(call, "__qualname__", "").endswith(f"Calls.{name}")}
    awaitable |= {"gather", "patched", "sleep", "step", "wait_for_approval", "wait_for_signal"}  # in durable functions
    assert set(tasklib.sync.__all__) == awaitable
    for name in awaitable:
        assert inspect.signature(getattr(tasklib.sync, name)) == inspect.signature(getattr(tasklib, name))


@pytest.mark.parametrize("name", tasklib.sync.__all__)
def test_no_call_has_a_twin_called_sync_and_asking_for_it_says_where_it_is(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"tasklib\.{name}_sync is called tasklib\.sync\.{name}\."):
        getattr(tasklib, f"{name}_sync")


def test_help_shows_what_a_caller_writes_and_gets() -> None:
    shown = inspect.signature(tasklib.get_task)
    assert str(shown) == "(task_id: 'UUID | str') -> 'Task | None'"
    assert "self" not in inspect.signature(tasklib.sync.submit_task).parameters
    assert str(inspect.signature(tasklib.Client("postgresql://").get_task)) == str(shown)


def test_the_columns_are_those_of_the_model() -> None:
    assert tuple(tasklib.Task.model_fields) == TASK_COLUMNS


def test_the_type_of_a_task_function_can_be_named_at_run_time() -> None:
    assert tasklib.TaskFunction[[int], str].__args__[1] is str
    assert tasklib.TaskFunction[..., str] | None

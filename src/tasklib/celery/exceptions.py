"""Celery's exceptions, as far as a task or its caller meets them here.

TaskLibError
└── CeleryError
    ├── NotOnTaskLib            a name of Celery's that TaskLib refuses, with what to do instead
    ├── ImproperlyConfigured    a setting that can't be
    ├── TaskPredicate           raised by a task to say how the attempt ends
    │   ├── Ignore
    │   ├── Reject
    │   └── Retry
    └── TaskError
        ├── NotRegistered
        ├── TimeoutError
        ├── MaxRetriesExceededError
        ├── TaskRevokedError
        ├── ChordError
        └── IncompleteStream
"""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import Any

from tasklib.errors import DatabaseUnavailable, TaskLibError


class CeleryError(TaskLibError):
    """The base of all exceptions of this package."""


class NotOnTaskLib(CeleryError, AttributeError):
    """A part of Celery's interface that TaskLib doesn't have. It says what to use instead."""


class ImproperlyConfigured(CeleryError):
    """A setting that TaskLib can't follow."""


class TaskPredicate(CeleryError):
    """Raised by a task to say how the attempt ends."""


class Ignore(TaskPredicate):
    """The attempt ends without a result of its own: the task is completed with None."""


class CeleryReject(TaskPredicate):
    """Give up at once. With `requeue=True` the task runs again, which uses one retry."""

    def __init__(self, reason: Any = None, requeue: bool = False) -> None:
        self.reason = reason
        self.requeue = requeue
        super().__init__(reason, requeue)


class CeleryRetry(TaskPredicate):
    """What `self.retry()` raises."""

    def __init__(
        self, message: str | None = None, exc: BaseException | None = None, when: datetime | float | None = None
    ) -> None:
        self.message = message
        self.exc = exc
        self.when = when
        super().__init__(message or f"Retry in {when}s" + (f": {exc!r}" if exc is not None else ""))


class CeleryTaskError(CeleryError):
    """The base of what is wrong with one task."""


class NotRegistered(CeleryTaskError, KeyError):
    """No task of this name."""

    def __repr__(self) -> str:
        return f"Task of kind {self} never registered, please make sure it's imported."


class CeleryTimeoutError(CeleryTaskError, builtins.TimeoutError):
    """`AsyncResult.get(timeout=...)` gave up waiting. The task goes on."""


class MaxRetriesExceededError(CeleryTaskError):
    """`self.retry()` without an exception, after the last retry."""

    def __init__(self, *args: Any, task_args: Any = (), task_kwargs: Any = None) -> None:
        self.task_args = task_args
        self.task_kwargs = dict(task_kwargs or {})
        super().__init__(*args)


class TaskRevokedError(CeleryTaskError):
    """The task was cancelled, or its `expires` had passed before it began."""


class ChordError(CeleryTaskError):
    """A task of a chord's header failed, so its body doesn't run."""


class IncompleteStream(CeleryTaskError):
    """`collect()` met a task that has not ended."""


Reject, Retry, TaskError, TimeoutError = CeleryReject, CeleryRetry, CeleryTaskError, CeleryTimeoutError
OperationalError = DatabaseUnavailable
"""As Celery calls them."""

_REFUSED = {
    "SoftTimeLimitExceeded": "TaskLib has no soft time limits: give time_limit, and look at "
    "tasklib.current_task().seconds_left in long loops",
    "TimeLimitExceeded": "an attempt that runs out of time is never told: its task ends as FAILURE with TaskTimeout",
    "WorkerLostError": "a task whose worker is lost runs again, up to the crash limit",
    "AlreadyRegistered": "two functions of one name raise tasklib.InvalidTaskFunction",
    "CeleryCommandException": "`tasklib` has commands of its own",
    "NotConfigured": "without a database, tasklib.NotInitialized is raised",
    "QueueNotFound": "a queue exists as soon as a task names it",
    "reraise": "write `raise`",
    **dict.fromkeys(
        ("BackendError", "BackendGetMetaError", "BackendStoreError"),
        "a database that can't be reached raises tasklib.DatabaseUnavailable",
    ),
    **dict.fromkeys(("SecurityError", "SecurityWarning"), "messages aren't signed"),
    **dict.fromkeys(("WorkerShutdown", "WorkerTerminate", "Terminated"), "a worker is stopped by a signal"),
    **dict.fromkeys(
        ("AlwaysEagerIgnored", "DuplicateNodenameWarning", "DuplicateTaskNameWarning", "FixupWarning"),
        "there is nothing to warn of",
    ),
    **dict.fromkeys(
        ("CeleryWarning", "CPendingDeprecationWarning", "CDeprecationWarning", "InvalidTaskError"), "it is never raised"
    ),
}


def __getattr__(name: str) -> Any:
    if reason := _REFUSED.get(name):
        raise NotOnTaskLib(f"celery.exceptions.{name}: {reason}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Celery's names for the states of a task, and which of TaskLib's states each one is."""

from __future__ import annotations

from typing import Any

from tasklib.celery.exceptions import NotOnTaskLib
from tasklib.states import TaskState

PENDING = "PENDING"
RECEIVED = "RECEIVED"
STARTED = "STARTED"
SUCCESS = "SUCCESS"
FAILURE = "FAILURE"
REVOKED = "REVOKED"
REJECTED = "REJECTED"
RETRY = "RETRY"
IGNORED = "IGNORED"

READY_STATES = frozenset({SUCCESS, FAILURE, REVOKED})
UNREADY_STATES = frozenset({PENDING, RECEIVED, STARTED, REJECTED, RETRY})
EXCEPTION_STATES = frozenset({RETRY, FAILURE, REVOKED})
PROPAGATE_STATES = frozenset({FAILURE, REVOKED})
ALL_STATES = frozenset({PENDING, RECEIVED, STARTED, SUCCESS, FAILURE, RETRY, REVOKED})

_REFUSED = {
    "precedence": "a task has one state, that of its row",
    "state": "a state is a string",
}

OF_TASKLIB = {
    TaskState.PENDING: PENDING,
    TaskState.RUNNING: STARTED,
    TaskState.FAILED: RETRY,  # an attempt failed, and another one follows
    TaskState.COMPLETED: SUCCESS,
    TaskState.DEAD_LETTER: FAILURE,
    TaskState.CANCELLED: REVOKED,
}


def __getattr__(name: str) -> Any:
    if reason := _REFUSED.get(name):
        raise NotOnTaskLib(f"celery.states.{name}: {reason}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

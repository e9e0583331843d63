"""Celery's interface on TaskLib: change the import, and start `tasklib worker MODULE` instead of `celery worker`.

from tasklib.celery import Celery

app = Celery("tasks")

@app.task
def add(x, y):
    return x + y

add.delay(4, 4).get(timeout=10)
"""

from __future__ import annotations

from typing import Any

from tasklib.celery import states
from tasklib.celery.app import Celery, current_app_or_default, shared_task
from tasklib.celery.canvas import (
    CelerySignature,
    chain,
    chord,
    chunks,
    group,
    maybe_signature,
    signature,
    subtask,
    xmap,
    xstarmap,
)
from tasklib.celery.exceptions import NotOnTaskLib
from tasklib.celery.request import running_celery_task
from tasklib.celery.task import CeleryTask
from tasklib.celery.utils import uuid

__all__ = [
    "Celery",
    "Signature",
    "Task",
    "chain",
    "chord",
    "chunks",
    "current_app",
    "current_task",
    "group",
    "maybe_signature",
    "shared_task",
    "signature",
    "states",
    "subtask",
    "uuid",
    "xmap",
    "xstarmap",
]

Signature, Task = CelerySignature, CeleryTask
"""As Celery calls them."""


class _Current:
    """Stands for the app, or the task, that is current when it is asked."""

    def __init__(self, find: Any) -> None:
        self.__dict__["_find"] = find

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_find"](), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_find"](), name, value)

    def __bool__(self) -> bool:
        return self.__dict__["_find"]() is not None

    def __repr__(self) -> str:
        return repr(self.__dict__["_find"]())


current_app: Any = _Current(current_app_or_default)
current_task: Any = _Current(running_celery_task)

_REFUSED = {
    "bugreport": "run `tasklib doctor`",
    "maybe_patch_concurrency": "there is no eventlet or gevent pool",
}


def __getattr__(name: str) -> Any:
    if reason := _REFUSED.get(name):
        raise NotOnTaskLib(f"celery.{name}: {reason}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

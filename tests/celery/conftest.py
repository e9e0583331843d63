"""An app with tasks, on a database of its own."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import tasklib
from tasklib import Config
from tasklib.celery import Celery
from tasklib.celery.app import tasks as all_tasks


@pytest.fixture
def app(config: Config) -> Iterator[Celery]:
    tasklib.init(config)
    before = dict(all_tasks)
    all_tasks.clear()
    made = Celery("proj")
    yield made
    made.close()
    all_tasks.clear()
    all_tasks.update(before)


@pytest.fixture
def proj(app: Celery) -> Any:
    """The tasks of Celery's guides."""

    @app.task
    def add(x, y):  # type: ignore[no-untyped-def]  # as Celery's users write them
        return x + y

    @app.task
    def mul(x, y):  # type: ignore[no-untyped-def]
        return x * y

    @app.task
    def xsum(numbers):  # type: ignore[no-untyped-def]
        return sum(numbers)

    @app.task
    def fail(*args):  # type: ignore[no-untyped-def]
        raise ValueError("no such order")

    return SimpleNamespace(app=app, add=add, mul=mul, xsum=xsum, fail=fail)

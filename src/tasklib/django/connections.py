"""Django's connections around each attempt, as Django has them around each request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import close_old_connections, connections

from tasklib.tasks.function import TaskFunction


def look_after_connections(function: TaskFunction[Any, Any]) -> AbstractContextManager[None]:
    """Close what the database has dropped or CONN_MAX_AGE has ended, before and after the task."""
    return _own_thread() if function.is_async else _old_ones_closed()


@contextmanager
def _old_ones_closed() -> Iterator[None]:
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


@contextmanager
def _own_thread() -> Iterator[None]:
    """Give an async task a thread of its own for Django's synchronous parts, as an ASGI request has one.

    The thread is started when the task first needs it. Without this, all tasks would share one thread and one
    connection. Its connections are closed in it at the end: another thread may not do that, and the loop must not wait
    for a query of a task that was cancelled.
    """
    mine = ThreadSensitiveContext()
    token = SyncToAsync.thread_sensitive_context.set(mine)
    try:
        yield
    finally:
        SyncToAsync.thread_sensitive_context.reset(token)
        if (thread := SyncToAsync.context_to_thread_executor.pop(mine, None)) is not None:
            thread.submit(connections.close_all)
            thread.shutdown(wait=False)

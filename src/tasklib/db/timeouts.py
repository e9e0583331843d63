"""The time a statement may take: one rule for every connection of ours, sync or async.

A statement is a conversation with the server (a generator of psycopg's, or of `db/fast_path.py`). `within` ends it with
an error once its time is up, and the connection cannot be used again. A cancel request is sent to the server without
waiting for its answer: a server that doesn't answer the statement may not answer the cancel request either.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import capabilities, generators, waiting

_CANCEL_SECONDS = 10.0
T = TypeVar("T")
R = TypeVar("R")


def within(
    connection: TimedConnection | TimedAsyncConnection,
    conversation: Generator[T, Any, R],
    clock: Callable[[], float] = time.monotonic,
) -> Generator[T, Any, R]:
    """The same conversation, ended with an error if it takes longer than the connection allows.

    The caller that drives it has to look in from time to time (`send` a false value), as psycopg does every 0.1 s.
    """
    seconds = connection.statement_timeout
    deadline = clock() + seconds
    try:
        wanted = next(conversation)
        while True:
            ready = yield wanted
            if not ready and clock() > deadline:
                raise overdue(connection)
            wanted = conversation.send(ready)
    except StopIteration as end:
        answer: R = end.value
        return answer


def overdue(connection: TimedConnection | TimedAsyncConnection) -> psycopg.OperationalError:
    """Have the server cancel the statement; the error to raise."""
    _tell_to_stop(connection.pgconn)
    return psycopg.OperationalError(f"no answer within {connection.statement_timeout:g} s")


def _tell_to_stop(pgconn: psycopg.pq.abc.PGconn) -> None:
    """In a thread of its own: a connection is opened for it, which may take long or never succeed.

    Only with a libpq that does it without blocking: the older call keeps the interpreter's lock, and with it the whole
    process, until the server answers. Without it the server notices when it next writes to the closed connection.
    """
    if capabilities.has_cancel_safe():
        with suppress(psycopg.Error):  # it is broken already
            threading.Thread(target=_cancel, args=[pgconn.cancel_conn()], daemon=True).start()


def _cancel(cancelling: psycopg.pq.abc.PGcancelConn) -> None:
    with suppress(Exception):  # the server doesn't answer in time, or there is nothing left to cancel
        cancelling.start()
        waiting.wait_conn(generators.cancel(cancelling), interval=0.1, timeout=_CANCEL_SECONDS)


class TimedConnection(psycopg.Connection):
    """A connection on which each statement has so much time."""

    statement_timeout: float

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(within(self, gen), *args, **kwargs)


class TimedAsyncConnection(psycopg.AsyncConnection):
    """The same for asynchronous code."""

    statement_timeout: float

    async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        # A wait with a limit of its own (for notifications) is no statement.
        steps = gen if kwargs.get("timeout") is not None else within(self, gen)
        return await super().wait(steps, *args, **kwargs)


@contextmanager
def allowed(connection: psycopg.Connection | psycopg.AsyncConnection, seconds: float) -> Iterator[None]:
    """While the block runs, each statement may take this long: those of a task are its own affair."""
    assert isinstance(connection, TimedConnection | TimedAsyncConnection)
    before, connection.statement_timeout = connection.statement_timeout, seconds
    try:
        yield
    finally:
        connection.statement_timeout = before

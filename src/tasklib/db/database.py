"""The two runners: `Database` runs any `Query` synchronously, `AsyncDatabase` asynchronously. Colour lives here."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import psycopg
from psycopg.rows import tuple_row

from tasklib.config import Config
from tasklib.db.connect import connect, connect_async
from tasklib.db.failures import TRANSIENT, explained, is_connection_loss
from tasklib.db.query import Query
from tasklib.db.wire import exchange
from tasklib.sql import statement

T = TypeVar("T")
TRIES = 3


# After a fork, the parent's sockets are not ours: closing them politely would end the parent's sessions. So they are
# kept, and never used.
_inherited: list[object] = []


class Database:
    """A small pool of synchronous connections. Safe between threads and across forks."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._idle: list[psycopg.Connection] = []
        self._slots = threading.BoundedSemaphore(config.max_connections)
        self._pid = os.getpid()

    def run(self, query: Query[T]) -> T:
        """Run one statement in its own transaction and read its rows."""
        for attempt in range(TRIES):
            try:
                with self.connection() as connection:
                    if query.all_text:
                        return connection.wait(exchange(connection, query, self.config.schema))
                    return execute(connection, query, self.config.schema)
            except psycopg.Error as e:
                if not worth_another_try(e, attempt, repeatable=query.repeatable):
                    raise explained(e) from e
        raise AssertionError("unreachable")

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection]:
        """Borrow a connection in autocommit mode."""
        self._forget_after_fork()
        with self._slots:
            connection = self._take() or connect(self.config)
            try:
                yield connection
            except psycopg.Error as e:
                self._drop_if_useless(connection, e)
                raise
            finally:
                self._give_back(connection)

    def close(self) -> None:
        """Close the idle connections; the pool can be used again afterwards."""
        self._forget_after_fork()
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> psycopg.Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if _is_alive(connection):
                return connection
            connection.close()
        return None

    def _give_back(self, connection: psycopg.Connection) -> None:
        if connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.close()
        else:
            self._idle.append(connection)

    def _drop_if_useless(self, connection: psycopg.Connection, error: psycopg.Error) -> None:
        # A demoted primary still answers: its connections look alive, the idle ones too.
        if is_connection_loss(error):
            connection.close()
            self.close()

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            _inherited.extend(self._idle)
            self._idle, self._pid = [], os.getpid()
            self._slots = threading.BoundedSemaphore(self.config.max_connections)


class AsyncDatabase:
    """A small pool of asynchronous connections for one event loop."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._idle: list[psycopg.AsyncConnection] = []
        self._slots = asyncio.BoundedSemaphore(config.max_connections)
        self._pid = os.getpid()

    async def run(self, query: Query[T]) -> T:
        """Run one statement in its own transaction and read its rows."""
        for attempt in range(TRIES):
            try:
                async with self.connection() as connection:
                    if query.all_text:
                        return await connection.wait(exchange(connection, query, self.config.schema))
                    return await execute_async(connection, query, self.config.schema)
            except psycopg.Error as e:
                if not worth_another_try(e, attempt, repeatable=query.repeatable):
                    raise explained(e) from e
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """Borrow a connection in autocommit mode."""
        self._forget_after_fork()
        async with self._slots:
            connection = await self._take() or await connect_async(self.config)
            try:
                yield connection
            except psycopg.Error as e:
                await self._drop_if_useless(connection, e)
                raise
            finally:
                await self._give_back(connection)

    def close(self) -> None:
        """Close the idle connections. Synchronous, so that it also works after the loop has ended."""
        self._forget_after_fork()
        while self._idle:
            discard(self._idle.pop())

    def __del__(self) -> None:
        # The pool of a loop that is gone; nobody is left to close it.
        self.close()

    async def _take(self) -> psycopg.AsyncConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if _is_alive(connection):
                return connection
            await connection.close()
        return None

    async def _drop_if_useless(self, connection: psycopg.AsyncConnection, error: psycopg.Error) -> None:
        # A demoted primary still answers: its connections look alive, the idle ones too.
        if is_connection_loss(error):
            await connection.close()
            self.close()

    async def _give_back(self, connection: psycopg.AsyncConnection) -> None:
        if connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            await connection.close()
        else:
            self._idle.append(connection)

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            _inherited.extend(self._idle)
            self._idle, self._pid = [], os.getpid()
            self._slots = asyncio.BoundedSemaphore(self.config.max_connections)


def execute(connection: psycopg.Connection, query: Query[T], schema: str | None) -> T:
    """Run a query on this connection, in whatever transaction it is in."""
    text = statement(query.name, schema)
    # A plain cursor with plain rows: the connection may be a user's, with factories of their own.
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(text, query.parameters, prepare=_prepare(connection, query))
        return query.read(cursor.fetchall() if cursor.description else ())


async def execute_async(connection: psycopg.AsyncConnection, query: Query[T], schema: str | None) -> T:
    """Run a query on this connection, in whatever transaction it is in."""
    text = statement(query.name, schema)
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(text, query.parameters, prepare=_prepare(connection, query))
        return query.read(await cursor.fetchall() if cursor.description else ())


def worth_another_try(error: psycopg.Error, attempt: int, *, repeatable: bool) -> bool:
    """Whether to run again what just failed; the first time is attempt 0."""
    passes = isinstance(error, TRANSIENT) or (repeatable and is_connection_loss(error))
    return passes and attempt < TRIES - 1


def _prepare(connection: psycopg.Connection | psycopg.AsyncConnection, query: Query[T]) -> bool | None:
    return False if connection.prepare_threshold is None else query.prepare


def _is_alive(connection: psycopg.Connection | psycopg.AsyncConnection) -> bool:
    """False if the server has hung up while the connection lay idle: then its socket is readable."""
    if connection.closed:
        return False
    try:
        connection.pgconn.consume_input()
    except psycopg.Error:
        return False
    return connection.pgconn.status == psycopg.pq.ConnStatus.OK


def discard(connection: psycopg.AsyncConnection) -> None:
    """Close the socket now, without waiting for anybody."""
    connection.pgconn.finish()

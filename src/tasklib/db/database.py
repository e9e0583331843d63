"""The two runners: `Database` runs any `Query` synchronously, `AsyncDatabase` asynchronously."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from queue import SimpleQueue
from typing import Generic, TypeVar

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.string import TextLoader

from tasklib.config import Config
from tasklib.db.connect import connect, connect_async
from tasklib.db.failures import MOST_CONFLICTS, conflict_pause, is_connection_loss, is_transient, lost
from tasklib.db.fast_path import discard, exchange, is_alive, is_before_18, wait
from tasklib.db.query import Query
from tasklib.errors import DatabaseUnavailable
from tasklib.sql import statement

T = TypeVar("T")
MOST_LOSSES = 3
"""Tries of what may be repeated, on a connection that is lost each time."""


# After a fork, the parent's sockets are not ours: closing them politely would end the parent's sessions. So they are
# kept, and never used.
_inherited: list[object] = []


C = TypeVar("C", psycopg.Connection, psycopg.AsyncConnection)


class _Pool(Generic[C]):
    """The idle connections of either runner."""

    def __init__(self, config: Config, role: str = "client") -> None:
        self.config = config
        self._role = role
        self._idle: list[C] = []
        self._pid = os.getpid()

    def close(self) -> None:
        """Close the idle connections; the pool can be used again afterwards. Also works after the loop has ended."""
        self._forget_after_fork()
        while (connection := self._pop()) is not None:
            discard(connection)

    def _take(self) -> C | None:
        while (connection := self._pop()) is not None:
            if is_alive(connection):
                return connection
            discard(connection)
        return None

    def _pop(self) -> C | None:
        try:
            return self._idle.pop()
        except IndexError:  # asked for, not looked up: another thread may take the last one in between
            return None

    def _keep_or_discard(self, connection: C) -> None:
        # A connection that is closed, or in the middle of something, isn't idle.
        if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            discard(connection)

    def _drop_if_useless(self, connection: C, error: Exception) -> None:
        # A demoted primary still answers: its connections look alive, the idle ones too.
        if is_connection_loss(error):
            discard(connection)
            self.close()

    def _forget_after_fork(self) -> bool:
        if self._pid == os.getpid():
            return False
        _inherited.extend(self._idle)
        self._idle, self._pid = [], os.getpid()
        return True


class _Calls(threading.local):
    """How many calls this thread is in the middle of. More than one: a signal handler has interrupted the first."""

    count = 0


class Database(_Pool[psycopg.Connection]):
    """A small pool of synchronous connections. Safe between threads, across forks and in signal handlers."""

    def __init__(self, config: Config, role: str = "client") -> None:
        super().__init__(config, role)
        self._slots = _as_many_as(config.max_connections)
        self._calls = _Calls()

    def run(self, query: Query[T]) -> T:
        """Run one statement in its own transaction and read its rows."""
        tries = Tries(repeatable=query.repeatable)
        while True:
            connection = self._borrow()
            try:
                if query.all_text:
                    return connection.wait(exchange(connection, query, self.config.schema))
                return execute(connection, query, self.config.schema)
            except psycopg.Error as e:
                self._drop_if_useless(connection, e)
                pause = tries.pause_after(e)
            finally:
                self._give_back(connection)
            time.sleep(pause)

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection]:
        """Borrow a connection in autocommit mode."""
        connection = self._borrow()
        try:
            yield connection
        except psycopg.Error as e:
            self._drop_if_useless(connection, e)
            raise
        finally:
            self._give_back(connection)

    def _borrow(self) -> psycopg.Connection:
        if self._forget_after_fork():
            self._slots = _as_many_as(self.config.max_connections)
        self._calls.count += 1
        try:
            if self._calls.count > 1:
                # The call that was interrupted may be the one that holds the last connection, and goes on only after
                # this one: waiting for it would never end.
                return connect(self.config, role=self._role)
            slot = self._slots.get()
            try:
                return self._take() or connect(self.config, role=self._role)
            except BaseException:
                self._slots.put(slot)
                raise
        except BaseException:
            self._calls.count -= 1
            raise

    def _give_back(self, connection: psycopg.Connection) -> None:
        if self._calls.count > 1:
            discard(connection)
        else:
            self._keep_or_discard(connection)
            self._slots.put(None)
        self._calls.count -= 1


def _as_many_as(connections: int) -> SimpleQueue[None]:
    """A semaphore that is not written in Python: that of `threading` takes a tenth of a submission's calls."""
    slots: SimpleQueue[None] = SimpleQueue()
    for _ in range(connections):
        slots.put(None)
    return slots


class AsyncDatabase(_Pool[psycopg.AsyncConnection]):
    """A small pool of asynchronous connections for one event loop."""

    def __init__(self, config: Config, role: str = "client") -> None:
        super().__init__(config, role)
        self._slots = asyncio.Semaphore(config.max_connections)

    def __del__(self) -> None:
        # The pool of a closed event loop; it can't be closed any more.
        self.close()

    async def run(self, query: Query[T]) -> T:
        """Run one statement in its own transaction and read its rows."""
        tries = Tries(repeatable=query.repeatable)
        while True:
            connection = await self._borrow(self.config.statement_timeout_seconds)
            try:
                if query.all_text:
                    return await wait(connection, exchange(connection, query, self.config.schema))
                return await execute_async(connection, query, self.config.schema)
            except psycopg.Error as e:
                self._drop_if_useless(connection, e)
                pause = tries.pause_after(e)
            finally:
                self._give_back(connection)
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """Borrow a connection in autocommit mode."""
        connection = await self._borrow()
        try:
            yield connection
        except psycopg.Error as e:
            self._drop_if_useless(connection, e)
            raise
        finally:
            self._give_back(connection)

    async def _borrow(self, timeout: float | None = None) -> psycopg.AsyncConnection:
        if self._forget_after_fork():
            self._slots = asyncio.Semaphore(self.config.max_connections)
        try:
            # A timer for a wait only: it costs more than the rest of this.
            async with asyncio.timeout(timeout) if self._slots.locked() else nullcontext():
                await self._slots.acquire()
        except TimeoutError as e:
            raise DatabaseUnavailable(
                f"none of {self.config.max_connections} connections was free within {timeout:g} s (max_connections)."
            ) from e
        try:
            return self._take() or await connect_async(self.config, role=self._role)
        except BaseException:
            self._slots.release()
            raise

    def _give_back(self, connection: psycopg.AsyncConnection) -> None:
        self._keep_or_discard(connection)
        self._slots.release()


def execute(connection: psycopg.Connection, query: Query[T], schema: str | None) -> T:
    """Run a query on this connection, in whatever transaction it is in."""
    text = statement(query.name, schema, before_18=is_before_18(connection))
    # A plain cursor with plain rows: the connection may be a user's, with factories of their own.
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        read_as_text(cursor, query)
        cursor.execute(text, query.parameters, prepare=_prepare(connection, query))
        return query.read(cursor.fetchall() if cursor.description else ())


async def execute_async(connection: psycopg.AsyncConnection, query: Query[T], schema: str | None) -> T:
    """Run a query on this connection, in whatever transaction it is in."""
    text = statement(query.name, schema, before_18=is_before_18(connection))
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        read_as_text(cursor, query)
        await cursor.execute(text, query.parameters, prepare=_prepare(connection, query))
        return query.read(await cursor.fetchall() if cursor.description else ())


def read_as_text(cursor: psycopg.Cursor | psycopg.AsyncCursor, query: Query[T]) -> None:
    """What the query's own types say, for those that are no numbers."""
    if query.types:
        types = psycopg.adapters.types
        for oid in (types["uuid"].oid, types["jsonb"].oid, types["timestamptz"].oid, types["text"].array_oid):
            cursor.adapters.register_loader(oid, TextLoader)


class Tries:
    """How often one piece of work was tried, and whether it is worth another try."""

    def __init__(self, *, repeatable: bool) -> None:
        self._repeatable = repeatable
        self._losses = self._conflicts = 0

    def pause_after(self, error: Exception) -> float:
        """Seconds to wait before the next try after this error. If there is none, raises the error for the caller."""
        if is_transient(error) and self._conflicts < MOST_CONFLICTS - 1:
            self._conflicts += 1
            return conflict_pause(self._conflicts)
        if self._repeatable and is_connection_loss(error) and self._losses < MOST_LOSSES - 1:
            self._losses += 1
            return 0.0
        raise lost(error) from error


def _prepare(connection: psycopg.Connection | psycopg.AsyncConnection, query: Query[T]) -> bool | None:
    return False if connection.prepare_threshold is None else query.prepare

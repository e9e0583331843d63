"""Connections that come back: what a worker runs its queries on."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import psycopg

from tasklib.config import Config
from tasklib.db.connect import connect_async
from tasklib.db.database import execute_async
from tasklib.db.failures import MOST_CONFLICTS, conflict_pause, explained, is_connection_loss, is_transient
from tasklib.db.fast_path import discard, exchange, is_alive, wait
from tasklib.db.query import Query
from tasklib.errors import DatabaseUnavailable

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_LONG_WAIT_SECONDS = 0.02
_MANY_WAITS, _LATELY_SECONDS = 5, 1.0
_IDLE_SECONDS = 5.0
"""How long a connection of a pool stays open that isn't needed."""


def backoff(failures: int) -> float:
    """Seconds to wait before trying the database again: growing, capped, and never in step with other workers."""
    return min(_FIRST_PAUSE * 2.0 ** min(failures, 10), _LONGEST_PAUSE) * random.uniform(0.5, 1.0)


class ReconnectingConnection:
    """One connection for one purpose. It is opened when needed, dropped when it breaks or falls silent."""

    def __init__(
        self,
        config: Config,
        purpose: str,
        *,
        on_lost: Callable[[str, str], None] = lambda purpose, reason: None,
        on_back: Callable[[str], None] = lambda purpose: None,
    ) -> None:
        self._config = config
        self._purpose = purpose
        self._connection: psycopg.AsyncConnection | None = None
        self._turn = asyncio.Lock()  # several jobs may share a db
        self._lost = False
        self._plans_for_values = False
        self._on_lost = on_lost
        self._on_back = on_back

    async def run(self, query: Query[T], then: Callable[[T], None] | None = None) -> T:
        """Run a query once. DatabaseUnavailable means that the connection broke: it may have taken effect or not.

        `then` gets the answer to a query with `all_text` as soon as it is read, before the waiting coroutine resumes.
        """
        conflicts = 0
        if query.if_locked is not None and not self._config.prepared_statements:
            query = query.if_locked  # this session has no limit on waiting for a lock
        while True:
            try:
                async with self._turn:
                    connection = self._usable() or await self._open()
                    if query.all_text:
                        return await wait(connection, exchange(connection, query, self._config.schema, then))
                    return await execute_async(connection, query, self._config.schema)
            except asyncio.CancelledError:
                if query.all_text:  # it was given up in the middle of an answer
                    self.drop()
                raise
            except DatabaseUnavailable as e:
                raise self._report_lost(e) from e
            except psycopg.errors.FeatureNotSupported:
                if self._plans_for_values:
                    raise
                # Of what Citus distributes there is no plan that fits all values (db/connect.py).
                self._plans_for_values = True
                self.drop()
                continue
            except (psycopg.Error, OSError) as e:
                if is_connection_loss(e):
                    self.drop()
                    raise self._report_lost(e) from e
                conflicts += 1
                if not is_transient(e):
                    raise explained(e) if isinstance(e, psycopg.Error) else e from e
                if query.if_locked is not None:
                    query = query.if_locked
                elif conflicts == MOST_CONFLICTS:
                    raise DatabaseUnavailable(f"blocked by other transactions: {e}") from e
            await asyncio.sleep(conflict_pause(conflicts))

    async def run_until_answered(self, query: Query[T], give_up: Callable[[], bool] = lambda: False) -> T:
        """Run a query again and again until the database answers; for queries that may safely run twice."""
        failures = 0
        while True:
            try:
                return await self.run(query)
            except DatabaseUnavailable:
                if give_up():
                    raise
                await asyncio.sleep(backoff(failures))
                failures += 1

    async def open(self) -> None:
        """Connect before there is a query."""
        await self._open()

    def drop(self) -> None:
        """Close the connection at once; the next query opens a new one."""
        if self._connection is not None:
            discard(self._connection)
            self._connection = None

    def _usable(self) -> psycopg.AsyncConnection | None:
        """The connection, unless the server has hung up while it lay idle: then nothing need be sent to find out."""
        if self._connection is not None and not is_alive(self._connection):
            self.drop()
            self._report_lost(DatabaseUnavailable("the server closed the connection while it was idle"))
        return self._connection

    async def _open(self) -> psycopg.AsyncConnection:
        self._connection = await connect_async(self._config, role=f"worker {self._purpose}")
        if self._plans_for_values:
            await self._connection.execute("SET plan_cache_mode = auto")
        if self._lost:
            self._lost = False
            self._on_back(self._purpose)
        return self._connection

    def _report_lost(self, error: BaseException) -> DatabaseUnavailable:
        reason = str(error) or type(error).__name__
        if not self._lost:
            self._lost = True
            self._on_lost(self._purpose, reason)
        return error if isinstance(error, DatabaseUnavailable) else DatabaseUnavailable(reason)


class ReconnectingPool:
    """A few connections for queries of every kind. One is enough while there is little to do.

    A query that finds all of them at work waits for the first to be free. If it waits for long, or many have had to
    wait lately, another one is opened meanwhile: not for each task that comes to an idle worker, as opening a
    connection costs the server more than the task does. What is not needed for a while is closed, but for the last one.
    """

    def __init__(
        self,
        config: Config,
        purpose: str,
        most: int,
        *,
        on_lost: Callable[[str, str], None] = lambda purpose, reason: None,
        on_back: Callable[[str], None] = lambda purpose: None,
    ) -> None:
        self._most = most
        self._outage = False
        self._report_lost, self._report_back = on_lost, on_back
        self._config = config
        self._purpose = purpose
        self._connections = [self._new()]
        self._idle = list(self._connections)
        self._waiting: deque[asyncio.Future[ReconnectingConnection]] = deque()
        self._waits = deque[float](maxlen=_MANY_WAITS)
        """When queries last had to wait."""
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._fewest_idle = 0

    async def run(self, query: Query[T], then: Callable[[T], None] | None = None) -> T:
        """Run a query once. DatabaseUnavailable means that the connection broke: it may have taken effect or not.

        `then` gets the answer to a query with `all_text` as soon as it is read, before the caller is resumed.
        """
        connection = self._idle.pop() if self._idle else await self._free()
        if len(self._idle) < self._fewest_idle:
            self._fewest_idle = len(self._idle)
        try:
            return await connection.run(query, then)
        finally:
            self._give_back(connection)

    async def run_until_answered(self, query: Query[T]) -> T:
        """Run a query again and again until the database answers; for queries that may safely run twice."""
        failures = 0
        while True:
            try:
                return await self.run(query)
            except DatabaseUnavailable:
                await asyncio.sleep(backoff(failures))
                failures += 1

    def drop(self) -> None:
        """Close all connections at once; the next query opens a new one."""
        if self._opening is not None:
            self._opening.cancel()
        if self._closing is not None:
            self._closing.cancel()
        for connection in self._connections:
            connection.drop()

    async def _free(self) -> ReconnectingConnection:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[ReconnectingConnection] = loop.create_future()
        self._waiting.append(waiting)
        self._waits.append(loop.time())
        have_waited = len(self._waits) == _MANY_WAITS and loop.time() - self._waits[0] < _LATELY_SECONDS
        patience = loop.call_later(0.0 if have_waited else _LONG_WAIT_SECONDS, self._lose_patience)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self._give_back(waiting.result())
            raise
        finally:
            patience.cancel()

    def _lose_patience(self) -> None:
        if len(self._connections) < self._most and self._opening is None:
            self._opening = asyncio.create_task(self._open_another())

    def _give_back(self, connection: ReconnectingConnection) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(connection)
                return
        self._idle.append(connection)

    def _new(self) -> ReconnectingConnection:
        return ReconnectingConnection(self._config, self._purpose, on_lost=self._on_lost, on_back=self._on_back)

    async def _open_another(self) -> None:
        connection = self._new()
        try:
            await connection.open()
        except (psycopg.Error, DatabaseUnavailable, OSError):
            return  # those that are open go on; the next one that has to wait tries again
        finally:
            self._opening = None
        self._connections.append(connection)
        self._give_back(connection)
        self._fewest_idle = 0
        if self._closing is None:
            self._close_later()

    def _close_later(self) -> None:
        self._closing = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        """Close what was idle all the time since the last look, but for one connection."""
        self._closing = None
        for connection in self._idle[: min(self._fewest_idle, len(self._connections) - 1)]:
            self._idle.remove(connection)
            self._connections.remove(connection)
            connection.drop()
        self._fewest_idle = len(self._idle)
        if len(self._connections) > 1:
            self._close_later()

    def _on_lost(self, purpose: str, reason: str) -> None:
        if not self._outage:
            self._outage = True
            for connection in self._idle:
                connection.drop()  # else it would report the same outage later
            self._report_lost(purpose, reason)

    def _on_back(self, purpose: str) -> None:
        if self._outage:
            self._outage = False
            self._report_back(purpose)

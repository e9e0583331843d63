"""A connection that comes back: what a worker runs its queries on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

import psycopg

from tasklib.config import Config
from tasklib.db.connect import connect_async
from tasklib.db.database import execute_async
from tasklib.db.failures import MOST_CONFLICTS, TRANSIENT, conflict_pause, explained, is_connection_loss
from tasklib.db.fast_path import discard, exchange, is_alive, wait
from tasklib.db.query import Query
from tasklib.errors import DatabaseUnavailable

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0


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
        self._on_lost = on_lost
        self._on_back = on_back

    async def run(self, query: Query[T], then: Callable[[T], None] | None = None) -> T:
        """Run a query once. DatabaseUnavailable means that the connection broke: it may have taken effect or not.

        `then` gets the answer to a query with `all_text` as soon as it is read, before whoever waits is resumed.
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
            except (psycopg.Error, OSError) as e:
                if is_connection_loss(e):
                    self.drop()
                    raise self._report_lost(e) from e
                conflicts += 1
                if not isinstance(e, TRANSIENT):
                    raise explained(e) if isinstance(e, psycopg.Error) else e from e
                if query.if_locked is not None:
                    query = query.if_locked
                elif conflicts == MOST_CONFLICTS:
                    raise DatabaseUnavailable(f"other transactions are in the way: {e}") from e
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

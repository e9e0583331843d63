"""A worker's heartbeat on PostgreSQL: from a thread, on a connection of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import psycopg

from tasklib.backends.postgres.settlements import Steps, extension
from tasklib.config import Config
from tasklib.db.connect import connect
from tasklib.db.database import execute
from tasklib.db.query import Query
from tasklib.errors import DatabaseUnavailable
from tasklib.store import fleet
from tasklib.store.settle import Kept, Leased

T = TypeVar("T")


class PostgresHeartbeatConnection:
    """The heartbeat's own connection, opened when needed."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._connection: psycopg.Connection | None = None

    def beat(self, worker_id: str, *, load: int, draining: bool, names: Sequence[str] | None) -> bool | None:
        return self._run(fleet.heartbeat(worker_id, load=load, draining=draining, names=names))

    def extend(self, worker_id: str, leases: Sequence[Leased], seconds: float) -> Kept:
        return self._run_steps(extension(leases, worker_id, seconds))

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run(self, query: Query[T]) -> T:
        try:
            self._connection = self._connection or connect(self._config, role="heartbeat")
            return execute(self._connection, query, self._config.schema)
        except (psycopg.Error, OSError) as e:
            self.drop()
            raise DatabaseUnavailable(str(e)) from e

    def _run_steps(self, steps: Steps[T]) -> T:
        try:
            query = next(steps)
            while True:
                query = steps.send(self._run(query))
        except StopIteration as end:
            result: T = end.value
            return result

"""Keeping leases: a thread and a connection of their own, so that a task that blocks the loop doesn't cost them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import psycopg

from tasklib.config import Config
from tasklib.db.connect import connect
from tasklib.db.database import execute
from tasklib.errors import DatabaseUnavailable
from tasklib.store import settle
from tasklib.worker.attempt import Attempt

# A lease is extended when a third of it is used up, and given up for lost a little before it really ends.
_EXTEND_AT = 2 / 3
_MARGIN = 0.1
_TICKS_PER_LEASE = 6


class LeaseKeeper(threading.Thread):
    """Extends the leases of running attempts, and says which are lost.

    The deadline of a lease is counted on this machine's monotonic clock from before the statement that granted it was
    sent: it always ends earlier here than in the database. A worker that was stopped, or cut off, knows so by itself.
    """

    def __init__(
        self, config: Config, held: Callable[[], Iterable[Attempt]], lost: Callable[[list[Attempt]], object]
    ) -> None:
        super().__init__(name="tasklib-leases", daemon=True)
        self._config = config
        self._held = held
        self._lost = lost
        self._over = threading.Event()
        self._connection: psycopg.Connection | None = None

    def run(self) -> None:
        while not self._over.wait(self._config.lock_timeout_seconds / _TICKS_PER_LEASE):
            self.tick()
        if self._connection is not None:
            self._connection.close()

    def stop(self) -> None:
        self._over.set()

    def tick(self) -> None:
        """Look at every held lease once."""
        now = time.monotonic()
        lease = self._config.lock_timeout_seconds
        lost, ageing = [], []
        for attempt in self._held():
            left = attempt.lease_deadline - now
            if left <= lease * _MARGIN:
                lost.append(attempt)
            elif left <= lease * _EXTEND_AT:
                ageing.append(attempt)
        lost += self._extend(ageing)
        if lost:
            self._lost(lost)

    def _extend(self, attempts: list[Attempt]) -> list[Attempt]:
        """Extend these leases and return the attempts that no longer hold theirs. A silent database loses none yet."""
        if not attempts:
            return []
        # One lock order for all who write many rows.
        attempts.sort(key=lambda a: a.lease.id)
        before = time.monotonic()
        try:
            self._connection = self._connection or connect(self._config, role="leases")
            query = settle.extend([a.lease for a in attempts], self._config.lock_timeout_seconds)
            kept = execute(self._connection, query, self._config.schema)
        except (psycopg.Error, DatabaseUnavailable, OSError):
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            return []
        for attempt in attempts:
            if attempt.lease.id in kept:
                attempt.lease_deadline = before + self._config.lock_timeout_seconds
        return [a for a in attempts if a.lease.id not in kept]

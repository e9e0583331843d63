"""Looks at the table twice a second, for what no single transition shows: I7 and I9, and deadlocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg

from proof.chaos.scene import SETTINGS
from proof.history.actors import ActorLog

SLACK = 3.0
SWEPT_WITHIN = (
    SETTINGS["leader_lease_seconds"]
    + SETTINGS["sweep_interval_seconds"]
    + SETTINGS["statement_timeout_seconds"]
    + SLACK
)
"""An attempt whose lease is over is ended this much later at most: the lead may have to change hands first."""
IDLE_AT_MOST = SETTINGS["poll_interval_seconds"] + 2 * SETTINGS["statement_timeout_seconds"] + SLACK
"""A worker with a free slot looks this often at least: its link may have fallen silent, and be opened anew."""

_LEASES = """
    SELECT COALESCE(extract(epoch FROM now() - min(locked_until)), 0)::float8, min(id::text)
    FROM tasks WHERE state = 'running' AND locked_until < now()
"""
_WAITING = """
    SELECT COALESCE(extract(epoch FROM now() - min(due)), 0)::float8 FROM (
        SELECT COALESCE(next_retry_at, scheduled_at) AS due FROM tasks
        WHERE state IN ('pending', 'failed') AND waits_for IS NULL AND COALESCE(next_retry_at, scheduled_at) <= now()
          -- What may be paused, and what a worker over HTTP doesn't take.
          AND name NOT IN ('chaos.slow', 'chaos.order') AND name NOT LIKE 'chaos.limited.%'
        ORDER BY queue, name, required_capabilities, priority, COALESCE(next_retry_at, scheduled_at), id LIMIT 1000
    ) AS waiting
"""
_IDLE = """
    SELECT workers.id, extract(epoch FROM now() - claimed.at)::float8
    FROM workers
    CROSS JOIN LATERAL (
        SELECT count(*) AS held FROM tasks WHERE state = 'running' AND worker_id = workers.id
    ) AS running
    CROSS JOIN LATERAL (
        SELECT greatest(workers.started_at,
                        (SELECT at FROM transitions WHERE worker = workers.id AND new_state = 'running'
                         ORDER BY seq DESC LIMIT 1)) AS at
    ) AS claimed
    WHERE status = 'active' AND last_heartbeat > now() - interval '2 seconds' AND held < capacity
"""
# Keys of limits whose tasks have been due for long, and of which none runs or waits for its retry. Not of
# limits that are held, nor of names with a breaker: those wait for good reasons.
_LEFT = """
    SELECT concat(waiting.name, ' ', waiting.key),
           (SELECT count(*) FROM workers WHERE status = 'active' AND last_heartbeat > now() - interval '2 seconds'
              AND capacity > (SELECT count(*) FROM tasks WHERE state = 'running' AND worker_id = workers.id))
    FROM (
        SELECT name, COALESCE(kwargs ->> 'account', kwargs ->> 'tenant', '') AS key
        FROM tasks
        WHERE state IN ('pending', 'failed') AND name LIKE 'chaos.limited.%'
          AND name NOT IN ('chaos.limited.both', 'chaos.limited.refused', 'chaos.limited.down')
          AND COALESCE(next_retry_at, scheduled_at) <= now() - interval '1 s'
        GROUP BY 1, 2
    ) AS waiting
    WHERE NOT EXISTS (
        SELECT FROM tasks AS other
        WHERE other.name LIKE 'chaos.limited.%'
          AND COALESCE(kwargs ->> 'account', kwargs ->> 'tenant', '') = waiting.key
          AND (other.state = 'running' OR other.state = 'failed' AND next_retry_at > now() - interval '1 s'
               OR other.name = waiting.name AND other.started_at > now() - interval '1 s'))
"""
_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


class Monitor(threading.Thread):
    """Runs until stopped. What it finds goes into its log."""

    def __init__(
        self, url: str, log: ActorLog, frozen: Callable[[], list[str]], *, limits: bool = False, in_time: bool = True
    ) -> None:
        super().__init__(daemon=True, name="monitor")
        self._url = url
        self._log = log
        self._frozen = frozen
        self._limits = limits
        self._in_time = in_time
        self._ended = threading.Event()
        self._undisturbed_since = time.monotonic()
        self._suspects: dict[str, float] = {}
        self._left: dict[str, float] = {}
        self._deadlocks_before = 0
        self.deadlocks = 0

    def stop(self) -> None:
        self._ended.set()
        self.join(10)

    def disturbed(self) -> None:
        """The database itself is at fault, or was: what waits, waits for it."""
        self._undisturbed_since = time.monotonic()

    def run(self) -> None:
        while not self._ended.wait(0.5):
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=3) as connection:
                    while not self._ended.wait(0.5):
                        self._look(connection)
            except psycopg.Error:
                self.disturbed()

    def _look(self, connection: psycopg.Connection) -> None:
        before = time.monotonic()
        late, task = connection.execute(_LEASES).fetchone() or (0.0, None)
        [waited] = connection.execute(_WAITING).fetchone() or (0.0,)
        idle = dict(connection.execute(_IDLE).fetchall()) if waited > IDLE_AT_MOST else {}
        with suppress(TypeError):
            [deadlocks] = connection.execute(_DEADLOCKS).fetchone() or (0,)
            self.deadlocks += max(0, deadlocks - self._deadlocks_before)
            self._deadlocks_before = deadlocks
        if time.monotonic() - before > 1.0:
            self.disturbed()  # it didn't answer for a while
        undisturbed = before - self._undisturbed_since
        if late > SWEPT_WITHIN and undisturbed > SWEPT_WITHIN:
            self._violated("I9", f"{task} is running {late:.1f} s past its lease")
        self._judge_idle(idle, undisturbed)
        if self._limits:
            self._judge_left({key: idle for key, idle in connection.execute(_LEFT).fetchall() if idle}, undisturbed)

    def _judge_left(self, left: dict[str, int], undisturbed: float) -> None:
        """A limit has room, and tasks behind it wait all the time, though workers are idle."""
        now = time.monotonic()
        self._left = {key: self._left.get(key, now) for key in left}
        for key, since in self._left.items():
            if now - since > IDLE_AT_MOST and undisturbed > IDLE_AT_MOST:
                self._violated("I7", f"tasks {key} wait for {now - since:.1f} s, and their limits have room")

    def _judge_idle(self, idle: dict[str, float], undisturbed: float) -> None:
        """A worker is to blame if it took nothing for that long, though it lived, had room, and tasks were due."""
        now = time.monotonic()
        frozen = self._frozen()
        self._suspects = {w: self._suspects.get(w, now) for w in idle if not any(w.startswith(f) for f in frozen)}
        for worker, since in self._suspects.items():
            if idle[worker] > IDLE_AT_MOST and now - since > IDLE_AT_MOST and undisturbed > IDLE_AT_MOST:
                self._violated("I7", f"{worker} took nothing for {idle[worker]:.1f} s, with a free slot and due tasks")

    def _violated(self, invariant: str, detail: str) -> None:
        if self._in_time:
            self._log.write(op="violation", invariant=invariant, detail=detail)

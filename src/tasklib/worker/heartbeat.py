"""The heartbeat thread: reports that this worker is alive, and extends its leases.

It has a thread and a connection of its own (`HeartbeatConnection`), so a task that blocks the event loop or holds the
GIL for a while delays neither. Deadlines are counted on the monotonic clock from before a heartbeat was sent: they end
earlier here than in the database, so a worker that was frozen or disconnected notices that it lost its tasks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from tasklib.backends.backend import HeartbeatConnection
from tasklib.config import Config
from tasklib.errors import DatabaseUnavailable
from tasklib.worker.attempt import Attempt

# A lease is extended when a third of it is used up, and given up for lost a little before it really ends.
_EXTEND_AT = 2 / 3
_MARGIN = 0.1
_TICKS_PER_LEASE = 6
# A little early: a task may hold the GIL for two thirds of the timeout without costing the worker its life.
_BEAT_EARLY = 0.8


class HeartbeatHost(Protocol):
    """The worker, as the heartbeat thread sees it. All methods are called from the heartbeat thread."""

    @property
    def id(self) -> str: ...
    @property
    def is_member(self) -> bool: ...
    @property
    def load(self) -> int: ...
    @property
    def is_draining(self) -> bool: ...
    def held(self) -> Sequence[Attempt]: ...
    def new_names(self) -> Sequence[str] | None: ...
    def lose(self, attempts: list[Attempt]) -> None: ...
    def drain(self) -> None: ...
    def renew(self) -> None: ...
    def beat_failed(self) -> None: ...


class HeartbeatThread(threading.Thread):
    """Beats until stopped."""

    def __init__(self, config: Config, host: HeartbeatHost, heartbeats: HeartbeatConnection) -> None:
        super().__init__(name="tasklib-heartbeat", daemon=True)
        self._config = config
        self._host = host
        self._heartbeats = heartbeats
        self._stopped = threading.Event()
        self._beat_now = threading.Event()
        self._last_beat = self._next_beat = time.monotonic()

    def run(self) -> None:
        tick = min(self._config.lock_timeout_seconds / _TICKS_PER_LEASE, self._config.heartbeat_interval_seconds / 2)
        while not self._stopped.is_set():
            self._beat_now.wait(tick)
            if not self._stopped.is_set():
                self.tick(at_once=self._beat_now.is_set())
        self._heartbeats.drop()

    def beat_soon(self) -> None:
        """Beat now rather than at the next interval: something about this worker has changed, or may have."""
        self._beat_now.set()

    def stop(self) -> None:
        self._stopped.set()
        self._beat_now.set()

    def tick(self, at_once: bool = False) -> None:
        """Send a heartbeat if it is due, then check every held lease once."""
        self._beat_now.clear()
        if at_once or time.monotonic() >= self._next_beat:
            self._beat()
        self._keep_leases()

    def _beat(self) -> None:
        before = time.monotonic()
        self._next_beat = before + self._config.heartbeat_interval_seconds * _BEAT_EARLY
        host = self._host
        if not host.is_member:  # on its way in, under a new id
            self._last_beat = before
            return
        try:
            asked_to_drain = self._heartbeats.beat(
                host.id, load=host.load, draining=host.is_draining, names=host.new_names()
            )
        except DatabaseUnavailable:
            host.beat_failed()
            self._next_beat = before + min(1.0, self._config.heartbeat_interval_seconds / 4)
            return
        self._last_beat = before
        if self._stopped.is_set():  # we are leaving, and our row may be gone for that
            return
        if asked_to_drain is None:
            host.renew()
        elif asked_to_drain:
            host.drain()

    def _keep_leases(self) -> None:
        now = time.monotonic()
        lease = self._config.lock_timeout_seconds
        held = self._host.held()
        silent_for = now - self._last_beat
        if silent_for > self._config.heartbeat_timeout_seconds * (1 - _MARGIN):
            # By now the leader may have given our tasks to others.
            lost, ageing = list(held), []
        else:
            lost = [a for a in held if a.lease_deadline - now <= lease * _MARGIN]
            ageing = [a for a in held if lease * _MARGIN < a.lease_deadline - now <= lease * _EXTEND_AT]
        lost += self._extend(ageing)
        if lost:
            self._host.lose(lost)

    def _extend(self, attempts: list[Attempt]) -> list[Attempt]:
        """Extend these leases and return the attempts that no longer hold theirs. A silent database loses none yet."""
        if not attempts:
            return []
        # One lock order for all who write many rows.
        attempts.sort(key=lambda a: a.claimed.id)
        before = time.monotonic()
        try:
            # Of what it claimed under an id that was declared dead, nothing is extended: it runs elsewhere soon.
            claimed = [a.claimed for a in attempts]
            kept, locked = self._heartbeats.extend(self._host.id, claimed, self._config.lock_timeout_seconds)
        except DatabaseUnavailable:
            return []
        for attempt in attempts:
            if attempt.claimed.id in kept:
                attempt.lease_deadline = before + self._config.lock_timeout_seconds
        return [a for a in attempts if a.claimed.id not in kept and a.claimed.id not in locked]

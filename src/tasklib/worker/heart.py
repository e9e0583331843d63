"""The heart: says that this worker lives, and keeps its leases.

A thread and a way to the tasks of its own (`Pulse`), so that a task that blocks the loop, or the pool, or holds the GIL
for a while costs neither. Deadlines are counted on the monotonic clock from before a beat was sent: they always end
earlier here than in the database, so a worker that was stopped or cut off knows by itself that its tasks are gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from tasklib.config import Config
from tasklib.errors import DatabaseUnavailable
from tasklib.worker.attempt import Attempt
from tasklib.worker.door import Pulse

# A lease is extended when a third of it is used up, and given up for lost a little before it really ends.
_EXTEND_AT = 2 / 3
_MARGIN = 0.1
_TICKS_PER_LEASE = 6
# A little early: a task may hold the GIL for two thirds of the timeout without costing the worker its life.
_BEAT_EARLY = 0.8


class Body(Protocol):
    """What the heart needs to know of its worker, and tells it. All of it may be called from the heart's thread."""

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


class Heart(threading.Thread):
    """Beats until stopped."""

    def __init__(self, config: Config, body: Body, pulse: Pulse) -> None:
        super().__init__(name="tasklib-heart", daemon=True)
        self._config = config
        self._body = body
        self._pulse = pulse
        self._stopped = threading.Event()
        self._beat_now = threading.Event()
        self._last_beat = self._next_beat = time.monotonic()

    def run(self) -> None:
        tick = min(self._config.lock_timeout_seconds / _TICKS_PER_LEASE, self._config.heartbeat_interval_seconds / 2)
        while not self._stopped.is_set():
            self._beat_now.wait(tick)
            if not self._stopped.is_set():
                self.tick(at_once=self._beat_now.is_set())
        self._pulse.drop()

    def beat_soon(self) -> None:
        """Beat now rather than at the next interval: something about this worker has changed, or may have."""
        self._beat_now.set()

    def stop(self) -> None:
        self._stopped.set()
        self._beat_now.set()

    def tick(self, at_once: bool = False) -> None:
        """Beat if it is time, then look at every held lease once."""
        self._beat_now.clear()
        if at_once or time.monotonic() >= self._next_beat:
            self._beat()
        self._keep_leases()

    def _beat(self) -> None:
        before = time.monotonic()
        self._next_beat = before + self._config.heartbeat_interval_seconds * _BEAT_EARLY
        body = self._body
        if not body.is_member:  # on its way in, under a new id
            self._last_beat = before
            return
        try:
            asked_to_drain = self._pulse.beat(
                body.id, load=body.load, draining=body.is_draining, names=body.new_names()
            )
        except DatabaseUnavailable:
            body.beat_failed()
            self._next_beat = before + min(1.0, self._config.heartbeat_interval_seconds / 4)
            return
        self._last_beat = before
        if self._stopped.is_set():  # we are leaving, and our row may be gone for that
            return
        if asked_to_drain is None:
            body.renew()
        elif asked_to_drain:
            body.drain()

    def _keep_leases(self) -> None:
        now = time.monotonic()
        lease = self._config.lock_timeout_seconds
        held = self._body.held()
        silent_for = now - self._last_beat
        if silent_for > self._config.heartbeat_timeout_seconds * (1 - _MARGIN):
            # By now the leader may have given our tasks to others.
            lost, ageing = list(held), []
        else:
            lost = [a for a in held if a.lease_deadline - now <= lease * _MARGIN]
            ageing = [a for a in held if lease * _MARGIN < a.lease_deadline - now <= lease * _EXTEND_AT]
        lost += self._extend(ageing)
        if lost:
            self._body.lose(lost)

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
            kept, locked = self._pulse.extend(self._body.id, claimed, self._config.lock_timeout_seconds)
        except DatabaseUnavailable:
            return []
        for attempt in attempts:
            if attempt.claimed.id in kept:
                attempt.lease_deadline = before + self._config.lock_timeout_seconds
        return [a for a in attempts if a.claimed.id not in kept and a.claimed.id not in locked]

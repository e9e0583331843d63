"""A worker's place in the fleet: its id, its row in `workers`, and what the fleet asks of it."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from tasklib.backends.backend import Backend, Registration
from tasklib.client.schedule_sync import deploy_stamp
from tasklib.config import Config
from tasklib.db.reconnecting import backoff
from tasklib.errors import DatabaseUnavailable
from tasklib.events import Events, WorkerRenewed
from tasklib.maintenance.failures import Failures
from tasklib.stats import StatsCollector
from tasklib.store.claim import Served
from tasklib.worker.attempt import Attempt, Interruption
from tasklib.worker.heartbeat import HeartbeatThread
from tasklib.worker.runner import Runner
from tasklib.worker.slots import Slots

_HEART_STOPS_WITHIN_SECONDS = 5.0
_NEVER = datetime.fromtimestamp(0, UTC)
"""The stamp of a program without files of task functions: it has no deploy to announce."""


def fresh_id(config: Config) -> str:
    """A new id: a reused one would hide tasks that its last owner left behind."""
    return f"{config.worker_id or f'{socket.gethostname()}-{os.getpid()}'}-{secrets.token_hex(4)}"


class Membership:
    """Joins, beats, leaves; begins anew under another id when it was declared dead."""

    def __init__(
        self,
        config: Config,
        backend: Backend,
        slots: Slots,
        runner: Runner,
        events: Events,
        collector: StatsCollector,
        *,
        id_: str,
        served: Callable[[], Served],
        drain: Callable[[], None],
    ) -> None:
        self.id = id_
        self.is_draining = False
        self.is_member = False
        self._config = config
        self._backend = backend
        self._slots = slots
        self._runner = runner
        self._events = events
        self._collector = collector
        self._served = served
        self._drain = drain
        self._told_names: Sequence[str] = ()
        self._loop = asyncio.get_running_loop()
        self._renewal: asyncio.Task[None] | None = None
        self._heartbeat = HeartbeatThread(config, self, backend.heartbeats())

    async def join(self) -> None:
        """Register, and begin to beat."""
        await self._register()
        self._heartbeat.start()

    async def leave(self) -> None:
        """Stop beating and take the row away: this worker holds nothing any more."""
        self._heartbeat.stop()
        if self._heartbeat.is_alive():
            await asyncio.to_thread(self._heartbeat.join, _HEART_STOPS_WITHIN_SECONDS)
        self.is_member = False
        if self._renewal is not None:
            self._renewal.cancel()
        with suppress(DatabaseUnavailable):  # then the leader will find us silent
            await self._backend.deregister(self.id)

    def look(self) -> None:
        """The fleet may have something to say to us: beat, and hear it."""
        self._heartbeat.beat_soon()

    def draining(self) -> None:
        """Let the fleet see that we drain."""
        self.is_draining = True
        self._heartbeat.beat_soon()

    async def _register(self) -> None:
        served = self._served()
        self._told_names = served.names or ()
        stamp = deploy_stamp(self._config.deployed_at)
        me = Registration(
            served, self._slots.size, _version(), socket.gethostname(), os.getpid(), stamp if stamp > _NEVER else None
        )
        self.id = await self._backend.register(self.id, me)
        self.is_member = True

    # What the heartbeat asks and tells, from its thread.

    @property
    def load(self) -> int:
        return min(self._slots.taken, self._slots.size)

    def held(self) -> list[Attempt]:
        return list(self._runner.running)

    def new_names(self) -> Sequence[str] | None:
        names = self._served().names or ()
        if names == self._told_names:
            return None
        self._told_names = names
        return names

    def lose(self, attempts: list[Attempt]) -> None:
        self._loop.call_soon_threadsafe(self._interrupt, attempts)

    def drain(self) -> None:
        if not self.is_draining:
            self._loop.call_soon_threadsafe(self._drain)

    def renew(self) -> None:
        self._loop.call_soon_threadsafe(self._begin_anew)

    def beat_failed(self) -> None:
        self._loop.call_soon_threadsafe(self._collector.count, "heartbeat_failed")

    # The same, on the loop.

    def _interrupt(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            self._runner.interrupt(attempt, Interruption.LEASE_LOST)

    def _begin_anew(self) -> None:
        if not self.is_member:
            return
        self.is_member = False
        self._interrupt(self.held())
        old, self.id = self.id, fresh_id(self._config)
        self._runner.begin_limit.reset()
        self._renewal = asyncio.create_task(self._register_anew(old))

    async def _register_anew(self, old: str) -> None:
        failures, tries = Failures(self._events, self._collector), 0
        while not self.is_member:
            with failures.survived("registration"):
                await self._register()
                break
            await asyncio.sleep(backoff(tries))
            tries += 1
        self._events.emit(WorkerRenewed(old, self.id))


def _version() -> str:
    try:
        return version("tasklib-pg")
    except PackageNotFoundError:
        return "unknown"

"""A worker with a database. Idle, it holds three connections: to listen, to beat, and for all else; the leader four."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypedDict

from tasklib.backends.backend import ClaimHost, Registration, RunningAttempts
from tasklib.backends.postgres.cancels import watch_for_cancel_requests
from tasklib.backends.postgres.claims import PostgresClaims
from tasklib.backends.postgres.heartbeat import PostgresHeartbeatConnection
from tasklib.backends.postgres.notifier import Notifier
from tasklib.backends.postgres.places import PostgresPlaces
from tasklib.backends.postgres.registration import leave, registered
from tasklib.backends.postgres.settlements import PostgresSettlements
from tasklib.backends.postgres.sleep import Wakeup
from tasklib.backends.postgres.steps import PostgresSteps
from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingPool
from tasklib.db.startup import wait_for_database
from tasklib.errors import ConfigError
from tasklib.events import DatabaseAwaited, DatabaseBack, DatabaseLost, Events, NotificationsMissing
from tasklib.maintenance.service import Maintenance
from tasklib.stats import StatsCollector
from tasklib.store import fleet, schedules, schema
from tasklib.store.durable import Suspension
from tasklib.store.settle import Failure, Settled
from tasklib.tasks.function import TaskFunction

_MOST_CONNECTIONS = 3
"""While it is busy: one claims, one settles, one is for what takes longer than expected."""


class _Report(TypedDict):
    on_lost: Callable[[str, str], None]
    on_back: Callable[[str], None]


class PostgresBackend(PostgresSettlements):
    """Claims, settles and beats by SQL; its worker may lead."""

    knows_order = True

    def __init__(self, config: Config, events: Events, collector: StatsCollector) -> None:
        report: _Report = {
            "on_lost": lambda purpose, reason: events.emit(DatabaseLost(purpose, reason)),
            "on_back": lambda purpose: events.emit(DatabaseBack(purpose)),
        }
        self._pool = ReconnectingPool(config, "tasks", _MOST_CONNECTIONS, **report)
        super().__init__(config, self._pool)
        self.steps, self.places = PostgresSteps(self._pool), PostgresPlaces(self._pool)
        self._events = events
        self._worker_id = ""
        self._maintenance = Maintenance(config, self._pool, events, collector, lambda: self._worker_id)
        self.notifier = Notifier(config, self._pool, on_silence=self._say_that_it_polls, **report)
        self.wakeup = Wakeup(self.notifier, config.poll_interval_seconds, events)

    async def open(self) -> Config:
        """Wait for the database, find out which schema we are in, and refuse one we don't fit."""
        # Imported here: Alembic takes a tenth of a second that clients and child processes never need.
        from tasklib.migrations.revisions import require_current, require_shard, require_utf8

        limit = self._config.startup_timeout_seconds
        await wait_for_database(self._config, lambda why: self._events.emit(DatabaseAwaited(why, limit)))
        require_utf8(*await self._pool.run(schema.encoding()))
        found = await self._pool.run(schema.where_is_tasks(self._config.schema))
        revision = await self._pool.run(schema.revision()) if found else None
        require_current(revision, self._config.schema)
        assert found is not None
        require_shard(await self._pool.run(schema.shard()), self._config.shard, found)
        self._schema = found
        return self._config

    def serves(self, function: TaskFunction[Any, Any]) -> bool:
        if function.takes_connection and not (function.transactional or self._config.transactional):
            raise ConfigError(
                f"{function.name} takes a connection. Write @task(transactional=True) above it, or set transactional "
                "in the configuration for all such functions (TASKLIB_TRANSACTIONAL=true)."
            )
        return True

    def claims(self, host: ClaimHost, *, burst: bool) -> PostgresClaims:
        if burst:
            self.folds.remember()
        return PostgresClaims(self._config, self._pool, self.wakeup, host, self.folds.counted)

    def jobs(self, running: RunningAttempts, look: Callable[[], None]) -> list[Coroutine[Any, Any, None]]:
        self.wakeup.on_fleet_change = look
        jobs = [
            *self._maintenance.jobs(),
            watch_for_cancel_requests(self._pool, running, self.wakeup.cancel_requested, self._maintenance.failures),
        ]
        if self._config.listen:
            self.notifier.on_away = self.wakeup.summon
            self.notifier.hearing.add(self.wakeup.hear)
            self.notifier.told[schedules.CHANGED] = self._maintenance.scheduler.look
            jobs.append(self.notifier.listen(self._schema))
        return jobs

    def _say_that_it_polls(self, reason: str) -> None:
        self._events.emit(NotificationsMissing(reason, self._config.poll_interval_seconds))

    def heartbeats(self) -> PostgresHeartbeatConnection:
        return PostgresHeartbeatConnection(self._config)

    async def register(self, id_: str, registration: Registration) -> str:
        await self._pool.run_until_answered(registered(id_, registration, self._config))
        self._worker_id = id_
        await self._maintenance.stats_reporter.tell()  # the first time only to learn the database's clock
        self.wakeup.ring()  # under another id, an idle worker has to announce anew that it sleeps
        return id_

    async def may_begin(self, worker_id: str, count: int | None) -> None:
        await self._pool.run(fleet.may_begin(worker_id, count))

    async def fail(self, worker_id: str, failures: Sequence[Failure], /, *, again: bool) -> Settled:
        settled = await super().fail(worker_id, failures, again=again)
        if "failed" in settled.states.values():
            self.wakeup.ring()  # an idle worker must learn when this retry is due
        return settled

    async def suspend(self, worker_id: str, suspensions: Sequence[Suspension], /, *, again: bool) -> Settled:
        settled = await super().suspend(worker_id, suspensions, again=again)
        self.wakeup.ring()  # an idle worker must learn when they go on
        return settled

    async def deregister(self, worker_id: str) -> None:
        """Hand the lead over, too."""
        await self.folds.idle()
        await self._maintenance.resign()
        await leave(self._pool, worker_id)

    async def close(self) -> None:
        self.folds.close()
        self._pool.drop()
        self._maintenance.close()

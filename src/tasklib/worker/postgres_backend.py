"""Straight to the database: each part of the loop on a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import psycopg

from tasklib.config import Config
from tasklib.db.connect import connect
from tasklib.db.database import execute
from tasklib.db.failures import is_bad_data
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.db.startup import wait_for_database
from tasklib.errors import ConfigError, DatabaseUnavailable
from tasklib.events import DatabaseAwaited, DatabaseBack, DatabaseLost, Events
from tasklib.maintenance.service import Maintenance
from tasklib.stats import StatsCollector
from tasklib.store import claim, fleet, schema, settle
from tasklib.store.claim import Served
from tasklib.store.settle import Completion, Failure, Lease, Leased
from tasklib.tasks.function import TaskFunction
from tasklib.worker.attempt import Attempt
from tasklib.worker.backend import Extended, HeartbeatConnection, Registration, Settled, Start, Unstorable
from tasklib.worker.begin_limit import BeginLimit
from tasklib.worker.cancels import watch_for_cancel_requests
from tasklib.worker.claimer import Claimer
from tasklib.worker.runner import Runner
from tasklib.worker.slots import Slots
from tasklib.worker.wakeup import Wakeup, listen

T = TypeVar("T")


class PostgresBackend:
    """Claims, settles and beats by SQL; its worker may lead."""

    knows_order = True

    def __init__(self, config: Config, events: Events, collector: StatsCollector) -> None:
        self._config = config
        self._events = events
        self._collector = collector
        self._claiming = _db(config, "claim", events)
        self._settling = _db(config, "settle", events)
        self._control = _db(config, "control", events)
        self._worker_id = ""
        self._maintenance = Maintenance(config, self._control, events, collector, lambda: self._worker_id)

    async def open(self) -> Config:
        """Wait for the database, find out which schema we are in, and refuse one we don't fit."""
        # Imported here: Alembic takes a tenth of a second that clients and child processes never need.
        from tasklib.migrations.revisions import require_current, require_utf8

        limit = self._config.startup_timeout_seconds
        await wait_for_database(self._config, lambda why: self._events.emit(DatabaseAwaited(why, limit)))
        require_utf8(*await self._claiming.run(schema.encoding()))
        found = await self._claiming.run(schema.where_is_tasks(self._config.schema))
        revision = await self._claiming.run(schema.revision()) if found else None
        require_current(revision, self._config.schema)
        assert found is not None
        self._schema = found
        return self._config

    def serves(self, function: TaskFunction[Any, Any]) -> bool:
        if function.takes_connection and not (function.transactional or self._config.transactional):
            raise ConfigError(
                f"{function.name} takes a connection. Write @task(transactional=True) above it, or set transactional "
                "in the configuration for all such functions (TASKLIB_TRANSACTIONAL=true)."
            )
        return True

    def claimer(
        self,
        slots: Slots,
        wakeup: Wakeup,
        events: Events,
        *,
        served: Callable[[], Served],
        worker_id: Callable[[], str],
        start: Start,
        held: Callable[[], Sequence[Attempt]],
        begin_limit: BeginLimit,
        burst: bool,
    ) -> Claimer:
        return Claimer(
            self._config,
            self._claiming,
            slots,
            wakeup,
            events,
            served=served,
            worker_id=worker_id,
            start=start,
            held=held,
            begin_limit=begin_limit,
            collector=self._collector,
            burst=burst,
        )

    def jobs(
        self, runner: Runner, wakeup: Wakeup, events: Events, worker_id: Callable[[], str]
    ) -> list[Coroutine[Any, Any, None]]:
        jobs = [
            *self._maintenance.jobs(),
            watch_for_cancel_requests(self._control, runner, wakeup.cancel_requested, self._maintenance.failures),
        ]
        if self._config.listen:
            jobs.append(listen(self._config, self._schema, wakeup, events))
        return jobs

    def heartbeats(self) -> HeartbeatConnection:
        return PostgresHeartbeatConnection(self._config)

    async def register(self, id_: str, registration: Registration) -> str:
        served = registration.served
        query = fleet.register(
            id_,
            queues=served.queues,
            names=served.names,
            capabilities=served.capabilities,
            capacity=registration.capacity,
            version=registration.version,
            host=registration.host,
            pid=registration.pid,
            heartbeat_timeout=self._config.heartbeat_timeout_seconds,
        )
        await self._control.run_until_answered(query)
        self._worker_id = id_
        await self._maintenance.stats_reporter.tell()  # the first time only to learn the database's clock
        return id_

    async def deregister(self, worker_id: str) -> None:
        """Hand the lead over, too."""
        await self._maintenance.resign()
        # What is still leased to us is what we know nothing of: the answer to the last claim was not waited for.
        held = await self._control.run(claim.leases_of(worker_id))
        if leases := sorted(Lease(c.id, c.token) for c in held):
            await self._control.run(settle.release(leases, worker_id))
        await self._control.run(fleet.deregister(worker_id))

    async def complete(
        self, worker_id: str, completions: Sequence[Completion], *, again: bool, contended: bool = False
    ) -> Settled:
        ours = await self._write(settle.complete(completions, worker_id, contended=contended), "the return value")
        return await self._judged(worker_id, [c.lease for c in completions], dict.fromkeys(ours, "completed"), again)

    async def fail(self, worker_id: str, failures: Sequence[Failure], *, again: bool) -> Settled:
        states = await self._write(settle.fail(failures, worker_id, self._config.crash_limit), "the error")
        return await self._judged(worker_id, [f.lease for f in failures], states, again)

    async def release(self, worker_id: str, leases: Sequence[Leased], *, again: bool) -> Settled:
        states = await self._settling.run(settle.release(leases, worker_id))
        return await self._judged(worker_id, leases, states, again, releasing=True)

    async def stop(self, worker_id: str, stopped: Sequence[tuple[Leased, str]], *, again: bool) -> Settled:
        ours = await self._write(settle.stop(stopped, worker_id), "the error")
        states = dict.fromkeys(ours, "cancelled")
        return await self._judged(worker_id, [lease for lease, _ in stopped], states, again)

    async def begin(self, worker_id: str, begins: Sequence[tuple[Leased, bool]]) -> set[str]:
        return await self._settling.run(settle.begin(begins, worker_id))

    async def may_begin(self, worker_id: str, count: int | None) -> None:
        await self._control.run(fleet.may_begin(worker_id, count))

    async def progress(self, worker_id: str, reports: Sequence[tuple[Leased, str]]) -> set[str]:
        stored = await self._settling.run(settle.progress(reports, worker_id))
        missing = [lease for lease, _ in reports if lease.id not in stored]
        return await self._settling.run(settle.still_held(missing, worker_id)) if missing else set()

    async def close(self) -> None:
        for db in (self._claiming, self._settling, self._control):
            db.drop()
        self._maintenance.close()

    async def _write(self, query: Query[T], what: str) -> T:
        try:
            return await self._settling.run(query)
        except psycopg.Error as e:
            if not is_bad_data(e):
                raise
            raise Unstorable(f"PostgreSQL refused {what}: {e.diag.message_primary}") from e

    async def _judged(
        self,
        worker_id: str,
        leases: Sequence[Leased],
        states: dict[str, str],
        again: bool,
        *,
        releasing: bool = False,
    ) -> Settled:
        """What a write left out is not ours any more, or locked; or, after a lost answer, settled already."""
        if len(states) == len(leases):
            return Settled(states)
        missing = [lease for lease in leases if lease.id not in states]
        locked = await self._settling.run(settle.still_held(missing, worker_id, releasing=releasing))
        over = await self._settling.run(settle.settled(missing)) if again else set()
        return Settled(dict.fromkeys(over, "failed") | states, locked)


class PostgresHeartbeatConnection:
    """The heartbeat's own connection, opened when needed."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._connection: psycopg.Connection | None = None

    def beat(self, worker_id: str, *, load: int, draining: bool, names: Sequence[str] | None) -> bool | None:
        return self._run(fleet.heartbeat(worker_id, load=load, draining=draining, names=names))

    def extend(self, worker_id: str, leases: Sequence[Leased], seconds: float) -> Extended:
        kept = self._run(settle.extend(leases, worker_id, seconds))
        missing = [lease for lease in leases if lease.id not in kept]
        locked = self._run(settle.still_held(missing, worker_id, unexpired=True)) if missing else set()
        return Extended(kept, locked)

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


def _db(config: Config, purpose: str, events: Events) -> ReconnectingConnection:
    return ReconnectingConnection(
        config,
        purpose,
        on_lost=lambda purpose, reason: events.emit(DatabaseLost(purpose, reason)),
        on_back=lambda purpose: events.emit(DatabaseBack(purpose)),
    )

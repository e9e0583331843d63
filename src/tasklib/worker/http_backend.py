"""Through a TaskLib server: the worker protocol of docs/reference/worker-protocol.md, from the worker's end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any

from tasklib.config import Config
from tasklib.db.reconnecting import backoff
from tasklib.db.startup import wait_for
from tasklib.errors import ConfigError, DatabaseUnavailable
from tasklib.events import DatabaseAwaited, DatabaseBack, DatabaseLost, Events
from tasklib.stats import StatsCollector
from tasklib.store.claim import Served
from tasklib.store.settle import Completion, Failure, Leased
from tasklib.tasks.function import TaskFunction
from tasklib.worker.attempt import Attempt, Interruption
from tasklib.worker.backend import Extended, HeartbeatConnection, Registration, Settled, Start, Unstorable
from tasklib.worker.begin_limit import BeginLimit
from tasklib.worker.http_connection import HttpConnection, HttpThreadLink, Refused, Server
from tasklib.worker.poller import Poller
from tasklib.worker.runner import Runner
from tasklib.worker.slots import Slots
from tasklib.worker.wakeup import Wakeup

_PROTOCOL = 1
_COUNT_SECONDS = 5.0
_ENVELOPE = 200
"""Bytes around a result in a request, at most."""


class HttpBackend:
    """Asks a server to claim, settle and beat; its worker never leads."""

    knows_order = False

    def __init__(self, config: Config, events: Events, collector: StatsCollector, url: str, token: str | None) -> None:
        self._config = config
        self._events = events
        self._collector = collector
        self._server = Server(url, token, config)
        self._polling = self._db("poll", events)
        self._settling = self._db("result", events)
        self._control = self._db("heartbeat", events)

    async def open(self) -> Config:
        """Wait for the server, find out its terms, and refuse one we don't understand."""
        limit = self._config.startup_timeout_seconds
        try:
            terms = await wait_for(
                lambda: self._control.ask("GET", "/terms"),
                limit,
                lambda why: self._events.emit(DatabaseAwaited(why, limit)),
            )
            protocol = terms["protocol"]
        except (Refused, ValueError, TypeError, KeyError) as e:
            raise ConfigError(f"there is no TaskLib server that serves workers at {self._server.url}: {e}") from e
        if protocol != _PROTOCOL:
            raise ConfigError(
                f"the server at {self._server.url} speaks version {protocol} of the worker protocol, and this worker "
                f"{_PROTOCOL}. Install the same version of TaskLib on both."
            )
        self.max_wait_seconds: float = terms["max_wait_seconds"]
        self.max_batch: int = terms["max_batch"]
        self._max_body_bytes: int = terms["max_body_bytes"]
        self._config = self._config.with_changes(
            lock_timeout_seconds=terms["lease_seconds"],
            heartbeat_interval_seconds=terms["heartbeat_interval_seconds"],
            heartbeat_timeout_seconds=terms["heartbeat_timeout_seconds"],
            max_payload_bytes=terms["max_payload_bytes"],
        )
        return self._config

    def serves(self, function: TaskFunction[Any, Any]) -> bool:
        """Not if it wants a connection to the database."""
        return not function.takes_connection

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
    ) -> Poller:
        return Poller(
            self._config,
            self._polling,
            slots,
            wakeup,
            events,
            served=served,
            worker_id=worker_id,
            start=start,
            held=held,
            collector=self._collector,
            wait_seconds=0.0 if burst else self.max_wait_seconds,
            burst=burst,
        )

    def jobs(
        self, runner: Runner, wakeup: Wakeup, events: Events, worker_id: Callable[[], str]
    ) -> list[Coroutine[Any, Any, None]]:
        return [self._hear(runner, wakeup, worker_id), self._count()]

    def heartbeats(self) -> HeartbeatConnection:
        return HttpHeartbeatConnection(self._server, self.max_batch)

    async def register(self, id_: str, registration: Registration) -> str:
        served = registration.served
        host = {
            "task_types": list(served.names or ()),
            "queues": list(served.queues) if served.queues is not None else None,
            "capabilities": list(served.capabilities),
            "capacity": registration.capacity,
            "name": self._config.worker_id,
            "version": registration.version,
            "host": registration.host,
            "pid": registration.pid,
        }
        failures = 0
        while True:
            try:
                answer = await self._control.ask("POST", "/register", host)
                return str(answer["worker_id"])
            except Refused as e:
                raise ConfigError(f"the server at {self._server.url} doesn't take this worker: {e.detail}") from e
            except DatabaseUnavailable:
                await asyncio.sleep(backoff(failures))
                failures += 1

    async def deregister(self, worker_id: str) -> None:
        with suppress(Refused):  # it was forgotten already
            await self._control.ask("DELETE", f"/{worker_id}")

    async def complete(
        self, worker_id: str, completions: Sequence[Completion], /, *, again: bool, contended: bool = False
    ) -> Settled:
        # A result is stored as {"value": ...}, and travels without that.
        items = [_item(c.lease, "completed", f',"result":{c.result[9:-1]}') for c in completions]
        return await self._report(worker_id, items, again)

    async def fail(self, worker_id: str, failures: Sequence[Failure], /, *, again: bool) -> Settled:
        items = [
            _item(
                f.lease,
                "failed",
                f',"error":{json.dumps(f.error)},"reason":"{f.outcome}","retriable":{json.dumps(f.retriable)},'
                f'"retry_in_seconds":{float(f.delay_seconds)!r}',
            )
            for f in failures
        ]
        return await self._report(worker_id, items, again)

    async def release(self, worker_id: str, leases: Sequence[Leased], /, *, again: bool) -> Settled:
        return await self._report(worker_id, [_item(lease, "released") for lease in leases], again)

    async def stop(self, worker_id: str, stopped: Sequence[tuple[Leased, str]], /, *, again: bool) -> Settled:
        items = [_item(lease, "cancelled", f',"error":{json.dumps(error)}') for lease, error in stopped]
        return await self._report(worker_id, items, again)

    async def begin(self, worker_id: str, begins: Sequence[tuple[Leased, bool]]) -> set[str]:
        ours: set[str] = set()
        items = [
            f'{{"task_id":"{lease.id}","lease_token":{lease.token},"at_most_once":{json.dumps(once)}}}'
            for lease, once in begins
        ]
        for batch in self._batches(items):
            try:
                answer = await self._settling.ask("POST", f"/{worker_id}/begin", f'{{"tasks":[{",".join(batch)}]}}')
            except Refused as e:
                if e.status == 404:  # we were declared dead, and forgotten
                    return ours
                raise DatabaseUnavailable(str(e)) from e
            ours |= {lease["task_id"] for lease in answer["begun"]}
        return ours

    async def may_begin(self, worker_id: str, count: int | None) -> None:
        """The server takes it that a worker has begun all it holds."""

    async def progress(self, worker_id: str, reports: Sequence[tuple[Leased, str]]) -> set[str]:
        items = [f'{{"task_id":"{lease.id}","lease_token":{lease.token},"progress":{text}}}' for lease, text in reports]
        for batch in self._batches(items):
            try:
                await self._settling.ask("POST", f"/{worker_id}/progress", f'{{"reports":[{",".join(batch)}]}}')
            except Refused:
                continue  # newer progress will come
        return set()

    async def close(self) -> None:
        for db in (self._polling, self._settling, self._control):
            await db.close()

    async def _report(self, worker_id: str, items: Sequence[str], again: bool) -> Settled:
        """Report these; the new states of those that were still ours."""
        states: dict[str, str] = {}
        locked: set[str] = set()
        refused: str | None = None
        for batch in self._batches(items):
            try:
                answer = await self._settling.ask("POST", f"/{worker_id}/result", f'{{"results":[{",".join(batch)}]}}')
            except Refused as e:
                if e.status == 404:  # we were declared dead, and forgotten
                    return Settled(states)
                raise Unstorable(e.detail) from e
            for verdict in answer["results"]:
                if verdict["accepted"]:
                    states[verdict["task_id"]] = verdict["status"]
                elif verdict["code"] == "already_settled" and again:
                    states[verdict["task_id"]] = "failed"  # or whatever: it is over
                elif verdict["code"] == "row_locked":
                    locked.add(verdict["task_id"])
                elif verdict["code"] == "result_not_storable":
                    refused = verdict["detail"]
        if refused is not None:
            raise Unstorable(refused)
        return Settled(states, locked)

    def _batches(self, items: Sequence[str]) -> Iterator[list[str]]:
        """As many at a time as the server takes."""
        batch: list[str] = []
        size = _ENVELOPE
        for item in items:
            length = len(item) if item.isascii() else len(item.encode())
            if batch and (len(batch) >= self.max_batch or size + length > self._max_body_bytes):
                yield batch
                batch, size = [], _ENVELOPE
            batch.append(item)
            size += length + 1
        if batch:
            yield batch

    async def _hear(self, runner: Runner, wakeup: Wakeup, worker_id: Callable[[], str]) -> None:
        """What the server has to say between the heartbeat's beats: cancel requests, and that we should drain."""
        told: set[str] = set()
        drains, failures = False, 0
        while True:
            held = {a.claimed.id: a for a in runner.running if not a.settled}
            told &= held.keys()
            host = {
                "status": "draining" if drains else "active",
                "cancelling": sorted(told),
                "wait_seconds": self.max_wait_seconds,
            }
            try:
                answer = await self._control.ask(
                    "POST", f"/{worker_id()}/heartbeat", host, wait_seconds=self.max_wait_seconds
                )
            except (DatabaseUnavailable, Refused) as e:
                if isinstance(e, Refused):
                    wakeup.on_fleet_change()  # the heartbeat will find out that we were declared dead
                await asyncio.sleep(backoff(failures))
                failures += 1
                continue
            failures = 0
            for lease in answer["cancel"]:
                told.add(lease["task_id"])
                _cancel(runner, lease["task_id"], lease["lease_token"])
            if answer["drain"] and not drains:
                drains = True
                wakeup.on_fleet_change()

    async def _count(self) -> None:
        """The server tells the database; here it is only added up, for whoever looks at this worker."""
        while True:
            await asyncio.sleep(_COUNT_SECONDS)
            self._collector.take()

    def _db(self, purpose: str, events: Events) -> HttpConnection:
        return HttpConnection(
            self._server,
            purpose,
            on_lost=lambda purpose, reason: events.emit(DatabaseLost(purpose, reason)),
            on_back=lambda purpose: events.emit(DatabaseBack(purpose)),
        )


class HttpHeartbeatConnection:
    """The heartbeat's own connection to the server."""

    def __init__(self, server: Server, max_batch: int) -> None:
        self._db = HttpThreadLink(server)
        self._max_batch = max_batch

    def beat(self, worker_id: str, *, load: int, draining: bool, names: Sequence[str] | None) -> bool | None:
        host = {
            "current_load": load,
            "status": "draining" if draining else "active",
            "task_types": list(names) if names else None,
        }
        answer = self._ask(worker_id, host)
        return None if answer is None else bool(answer["drain"])

    def extend(self, worker_id: str, leases: Sequence[Leased], seconds: float) -> Extended:
        kept: set[str] = set()
        locked: set[str] = set()
        for start in range(0, len(leases), self._max_batch):
            batch = leases[start : start + self._max_batch]
            running = [{"task_id": lease.id, "lease_token": lease.token} for lease in batch]
            answer = self._ask(worker_id, {"running": running})
            if answer is not None:
                kept |= {lease.id for lease in batch} - {lost["task_id"] for lost in answer["lost"]}
                locked |= {lease["task_id"] for lease in answer.get("locked", ())}
        return Extended(kept - locked, locked)

    def drop(self) -> None:
        self._db.drop()

    def _ask(self, worker_id: str, host: dict[str, Any]) -> Any:
        """The answer, or None if we were declared dead."""
        try:
            return self._db.ask("POST", f"/{worker_id}/heartbeat", host)
        except Refused as e:
            if e.status == 404:
                return None
            raise DatabaseUnavailable(str(e)) from e


def _item(lease: Leased, status: str, rest: str = "") -> str:
    return f'{{"task_id":"{lease.id}","lease_token":{lease.token},"status":"{status}"{rest}}}'


def _cancel(runner: Runner, task_id: str, token: int) -> None:
    for attempt in list(runner.running):
        if attempt.claimed.id == task_id and attempt.claimed.token == token and not attempt.settled:
            runner.interrupt(attempt, Interruption.CANCELLED)

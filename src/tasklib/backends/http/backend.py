"""A worker without a database: everything is asked of a TaskLib server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tasklib.backends.backend import ClaimHost, Registration, RunningAttempts
from tasklib.backends.http.claims import HttpClaims
from tasklib.backends.http.heartbeat import HttpHeartbeatConnection
from tasklib.backends.http.places import HttpPlaces
from tasklib.config import Config
from tasklib.db.reconnecting import backoff
from tasklib.db.startup import wait_for
from tasklib.errors import ConfigError, DatabaseUnavailable
from tasklib.events import DatabaseAwaited, DatabaseBack, DatabaseLost, Events
from tasklib.http.connection import Refused, WorkerConnection, server_address
from tasklib.stats import StatsCollector
from tasklib.store.durable import Suspension
from tasklib.store.settle import Completion, Failure, Kept, Lease, Leased, Settled
from tasklib.tasks.function import TaskFunction

_PROTOCOL = 1
_COUNT_SECONDS = 5.0
_ENVELOPE = 200
"""Bytes around a result in a request, at most."""
_NOT_DURABLE = (
    "its steps can't be recorded over HTTP. Run it on a worker with a database (TASKLIB_DATABASE_URL), from a module "
    "that this worker doesn't import."
)


class HttpBackend:
    """Asks a server to claim, settle and beat; its worker never leads."""

    knows_order = False
    steps = None

    def __init__(self, config: Config, events: Events, collector: StatsCollector, url: str, token: str | None) -> None:
        self._config = config
        self._events = events
        self._collector = collector
        self._address = server_address(url, token, config)
        self._polling = self._db("poll", events)
        self._settling = self._db("result", events)
        self._control = self._db("heartbeat", events)
        self.places = HttpPlaces(self._control)
        self._worker_id = ""
        self._look: Callable[[], None] = lambda: None

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
            raise ConfigError(f"there is no TaskLib server that serves workers at {self._address.url}: {e}") from e
        if protocol != _PROTOCOL:
            raise ConfigError(
                f"the server at {self._address.url} speaks version {protocol} of the worker protocol, and this worker "
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
        if function.durable:
            raise ConfigError(f"{function.name} is durable, and {_NOT_DURABLE}")
        return not function.takes_connection

    def claims(self, host: ClaimHost, *, burst: bool) -> HttpClaims:
        return HttpClaims(self._polling, host, 0.0 if burst else self.max_wait_seconds, lambda: self._look())

    def jobs(self, running: RunningAttempts, look: Callable[[], None]) -> list[Coroutine[Any, Any, None]]:
        self._look = look
        return [self._hear(running), self._count()]

    def heartbeats(self) -> HttpHeartbeatConnection:
        return HttpHeartbeatConnection(self._address, self.max_batch)

    async def register(self, id_: str, registration: Registration) -> str:
        served = registration.served
        body = {
            "task_types": list(served.names or ()),
            "queues": list(served.queues) if served.queues is not None else None,
            "capabilities": list(served.capabilities),
            "capacity": registration.capacity,
            "name": self._config.worker_id,
            "version": registration.version,
            "host": registration.host,
            "pid": registration.pid,
            "deployed_at": registration.deployed_at.isoformat() if registration.deployed_at else None,
        }
        failures = 0
        while True:
            try:
                answer = await self._control.ask("POST", "/register", body)
                self._worker_id = str(answer["worker_id"])
                return self._worker_id
            except Refused as e:
                raise ConfigError(f"the server at {self._address.url} doesn't take this worker: {e.detail}") from e
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
        items = [_result(c.lease, "completed", f',"result":{c.result[9:-1]}') for c in completions]
        return await self._report(worker_id, items, again)

    async def fail(self, worker_id: str, failures: Sequence[Failure], /, *, again: bool) -> Settled:
        items = [
            _result(
                f.lease,
                "failed",
                f',"error":{json.dumps(f.error)},"reason":"{f.outcome}","retriable":{json.dumps(f.retriable)},'
                f'"retry_in_seconds":{float(f.delay_seconds)!r}'
                + (f',"limit":{json.dumps(f.limit)}' if f.limit else ""),
            )
            for f in failures
        ]
        return await self._report(worker_id, items, again)

    async def release(self, worker_id: str, leases: Sequence[Leased], /, *, again: bool) -> Settled:
        return await self._report(worker_id, [_result(lease, "released") for lease in leases], again)

    async def stop(self, worker_id: str, stopped: Sequence[tuple[Leased, str]], /, *, again: bool) -> Settled:
        items = [_result(lease, "cancelled", f',"error":{json.dumps(error)}') for lease, error in stopped]
        return await self._report(worker_id, items, again)

    async def suspend(self, worker_id: str, suspensions: Sequence[Suspension], /, *, again: bool) -> Settled:
        """Refused: no durable function is served here, so this is one that another version of the program had begun."""
        return Settled(refused=dict.fromkeys((s.lease.id for s in suspensions), _NOT_DURABLE))

    def committed(self, leases: Iterable[Leased]) -> None:
        """The server counts what it stores; and no task over HTTP has a transaction of its own."""

    async def begin(self, worker_id: str, begins: Sequence[tuple[Leased, bool]]) -> set[str]:
        ours: set[str] = set()
        items = [_item(lease, f',"at_most_once":{json.dumps(once)}') for lease, once in begins]
        for batch in self._batches(items):
            try:
                answer = await self._settling.ask("POST", f"/{worker_id}/begin", f'{{"tasks":[{_texts(batch)}]}}')
            except Refused as e:
                if e.status == 404:  # we were declared dead, and forgotten
                    return ours
                raise DatabaseUnavailable(str(e)) from e
            ours |= {lease["task_id"] for lease in answer["begun"]}
        return ours

    async def may_begin(self, worker_id: str, count: int | None) -> None:
        """The server takes it that a worker has begun all it holds."""

    async def progress(self, worker_id: str, reports: Sequence[tuple[Leased, str]]) -> Kept:
        items = [_item(lease, f',"progress":{text}') for lease, text in reports]
        for batch in self._batches(items):
            try:
                await self._settling.ask("POST", f"/{worker_id}/progress", f'{{"reports":[{_texts(batch)}]}}')
            except Refused:
                continue  # newer progress will come
        return Kept({item.id for item in items})

    async def close(self) -> None:
        for db in (self._polling, self._settling, self._control):
            await db.close()

    async def _report(self, worker_id: str, items: Sequence[_Item], again: bool) -> Settled:
        """Report these; the new states of those that were still ours."""
        return Settled.together([await self._report_batch(worker_id, batch, again) for batch in self._batches(items)])

    async def _report_batch(self, worker_id: str, batch: Sequence[_Item], again: bool) -> Settled:
        try:
            answer = await self._settling.ask("POST", f"/{worker_id}/result", f'{{"results":[{_texts(batch)}]}}')
        except Refused as e:
            if e.status == 404:  # we were declared dead, and forgotten
                return Settled()
            if len(batch) == 1:
                return Settled(refused={batch[0].id: e.detail})
            # One outcome that the server won't take must not keep the others from being stored.
            return Settled.together([await self._report_batch(worker_id, [item], again) for item in batch])
        return _judged(answer["results"], again)

    def _batches(self, items: Sequence[_Item]) -> Iterator[list[_Item]]:
        """As many at a time as the server takes."""
        batch: list[_Item] = []
        size = _ENVELOPE
        for item in items:
            length = len(item.text) if item.text.isascii() else len(item.text.encode())
            if batch and (len(batch) >= self.max_batch or size + length > self._max_body_bytes):
                yield batch
                batch, size = [], _ENVELOPE
            batch.append(item)
            size += length + 1
        if batch:
            yield batch

    async def _hear(self, running: RunningAttempts) -> None:
        """What the server has to say between the heartbeat's beats: cancel requests, and that we should drain."""
        told: set[str] = set()
        drains, failures = False, 0
        while True:
            told &= {lease.id for lease in running.leases()}
            body = {
                "status": "draining" if drains else "active",
                "cancelling": sorted(told),
                "wait_seconds": self.max_wait_seconds,
            }
            try:
                answer = await self._control.ask(
                    "POST", f"/{self._worker_id}/heartbeat", body, wait_seconds=self.max_wait_seconds
                )
            except (DatabaseUnavailable, Refused) as e:
                if isinstance(e, Refused):
                    self._look()  # the heartbeat will find out that we were declared dead
                await asyncio.sleep(backoff(failures))
                failures += 1
                continue
            failures = 0
            cancelled = [Lease(lease["task_id"], lease["lease_token"]) for lease in answer["cancel"]]
            told |= {lease.id for lease in cancelled}
            running.cancel(cancelled)
            if answer["drain"] and not drains:
                drains = True
                self._look()

    async def _count(self) -> None:
        """The server tells the database; here it is only added up, for the metrics of this worker."""
        while True:
            await asyncio.sleep(_COUNT_SECONDS)
            self._collector.take()

    def _db(self, purpose: str, events: Events) -> WorkerConnection:
        return WorkerConnection(
            self._address,
            purpose,
            on_lost=lambda purpose, reason: events.emit(DatabaseLost(purpose, reason)),
            on_back=lambda purpose: events.emit(DatabaseBack(purpose)),
        )


def _texts(items: Sequence[_Item]) -> str:
    return ",".join(item.text for item in items)


class _Item(NamedTuple):
    """A report about one attempt, as JSON text."""

    id: str
    text: str


def _item(lease: Leased, rest: str = "") -> _Item:
    return _Item(lease.id, f'{{"task_id":"{lease.id}","lease_token":{lease.token}{rest}}}')


def _result(lease: Leased, status: str, rest: str = "") -> _Item:
    return _item(lease, f',"status":"{status}"{rest}')


def _judged(verdicts: Iterable[dict[str, Any]], again: bool) -> Settled:
    """What became of results, as the server says it of each."""
    states: dict[str, str] = {}
    refused: dict[str, str] = {}
    locked: set[str] = set()
    over: set[str] = set()
    for verdict in verdicts:
        id_, code = verdict["task_id"], verdict["code"]
        if verdict["accepted"]:
            states[id_] = verdict["status"]
        elif code == "row_locked":
            locked.add(id_)
        elif code == "result_not_storable":
            refused[id_] = verdict["detail"]
        elif code == "already_settled" and again:
            over.add(id_)
    return Settled(states, locked, refused, over)

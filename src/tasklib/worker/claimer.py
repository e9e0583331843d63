"""Claiming: as many tasks as there are free slots, as soon as there are some."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import psycopg

from tasklib.backends.backend import Backend, Found
from tasklib.db.failures import is_bad_data
from tasklib.db.reconnecting import backoff
from tasklib.errors import DatabaseUnavailable
from tasklib.events import DatabaseLost, Events, TasksClaimed
from tasklib.stats import StatsCollector
from tasklib.store.claim import Served
from tasklib.store.settle import Lease
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction
from tasklib.worker.attempt import Attempt
from tasklib.worker.begin_limit import BeginLimit
from tasklib.worker.slots import BATCH, Slots


class _Member(Protocol):
    @property
    def id(self) -> str: ...


class Serving:
    """What a worker takes: the names it was given, or those of all functions that are registered by now."""

    def __init__(self, names: Sequence[str] | None, queues: Sequence[str] | None, capabilities: Sequence[str]) -> None:
        self._names = names
        self._queues = queues
        self._capabilities = capabilities
        self._known_functions = -1
        self._served = self._of(names or ())
        self.serves: Callable[[TaskFunction[Any, Any]], bool] = lambda function: True
        """Whether the worker's backend can serve a function."""

    def served(self) -> Served:
        # Task functions may be registered at any time; there is rarely a new one.
        if self._names is None and len(registry.functions) != self._known_functions:
            self._known_functions = len(registry.functions)
            self._served = self._of([name for name in registry.names() if self.serves(registry.find(name))])
        return self._served

    def _of(self, names: Sequence[str]) -> Served:
        at_most_once = any(registry.find(name).at_most_once for name in names)
        return Served(tuple(names), self._queues, _offered(names, self._capabilities), at_most_once)


def _offered(names: Sequence[str], capabilities: Sequence[str]) -> Sequence[str]:
    """The worker's capabilities, and each version of arguments that its functions read."""
    versions = [(name, v) for name in names if (v := registry.find(name).versions) is not None]
    return (
        sorted({*capabilities, *(c for name, v in versions for c in v.capabilities(name))})
        if versions
        else capabilities
    )


class Claimer:
    """Claims tasks until stopped; with `burst`, until no task is due and none is running."""

    def __init__(
        self,
        backend: Backend,
        slots: Slots,
        events: Events,
        collector: StatsCollector,
        begin_limit: BeginLimit,
        serving: Serving,
        member: _Member,
        *,
        start: Callable[[Found], None],
        held: Callable[[], Sequence[Attempt]],
        burst: bool = False,
    ) -> None:
        self._slots = slots
        self._events = events
        self._collector = collector
        self._begin_limit = begin_limit
        self._serving = serving
        self._member = member
        self._start = start
        self._held = held
        self._burst = burst
        self._handed_on: Found | None = None
        """What the last claim returned, until it is started."""
        self._stopped = False
        self._loop = asyncio.get_running_loop()
        self.claims = backend.claims(self, burst=burst)

    def stop(self) -> None:
        """No further claims. A claim in flight ends, and its tasks are passed on."""
        self._stopped = True
        self.claims.stop()
        self._slots.nudge()

    async def run(self) -> None:
        failures = 0
        while not self._stopped:
            self._slots.resting = False
            self._slots.ahead = self._slots.prefetch.count if self._may_claim_ahead else 0
            try:
                if self._slots.worth_claiming:
                    await self._claim_or_rest()
                else:
                    await self._wait_for_slots()
                failures = 0
            except DatabaseUnavailable:
                self.claims.lost()
                self._slots.resting = True
                await asyncio.sleep(backoff(failures))
                failures += 1
            except psycopg.Error as e:
                # A row that was written by hand: it must not end this worker, and then the next one.
                if not is_bad_data(e):
                    raise
                self._events.emit(DatabaseLost("claim", str(e)))
                self._slots.resting = True
                await asyncio.sleep(backoff(failures))
                failures += 1
        self._slots.resting = True
        with suppress(DatabaseUnavailable):
            await self.claims.leave()

    @property
    def _may_claim_ahead(self) -> bool:
        """Only of known short functions. A claim may return any task: no prefetch where some run at most once."""
        return self.claims.are_short and not self._serving.served().at_most_once

    async def _claim_or_rest(self) -> None:
        was_idle, going_on = self._slots.taken == 0, self.claims.goes_on
        limit = self._limit(going_on)
        if limit <= 0:
            return  # there is work, and no slot for it
        if self._burst and was_idle:
            await self.claims.counted()
        self._slots.asked = limit
        try:
            found = await self.claims.claim(limit)
        finally:
            self._slots.asked = 0
        if found.tasks:
            self._hand_on(limit, found, more=len(found.tasks) == limit)
        elif not going_on and not self._stopped:
            await self._rest(was_idle=was_idle)

    def _limit(self, going_on: bool) -> int:
        # From the beginning, a claim may bring anything: no more than the slots will be free for in a moment.
        return min(self._slots.room, BATCH if going_on else min(BATCH, self._slots.size))

    def _hand_on(self, asked: int, found: Found, *, more: bool) -> None:
        self._slots.take(len(found.tasks))
        if self._events.routine:
            self._events.emit_routine(TasksClaimed(asked, len(found.tasks)))
        if more:
            # The next claim is sent first, so that the database works on it while these are started.
            self._start_handed_on()
            self._handed_on = found
            self._loop.call_soon(self._start_handed_on)
        else:
            self._start(found)
        self._collector.claimed(found.tasks)

    def _start_handed_on(self) -> None:
        found, self._handed_on = self._handed_on, None
        if found is not None:
            self._start(found)

    async def _wait_for_slots(self) -> None:
        if not self._slots.room or self.claims.needs_a_slot:
            taken, room = self._slots.taken, self._slots.room
            await self.claims.pass_on()
            if self._slots.taken < taken or self._slots.room > room:
                return  # a slot has become free meanwhile, and perhaps no other ever will
        with suppress(TimeoutError):
            async with asyncio.timeout(self.claims.stay_awake_after):
                await self._slots.changed()
                return
        await self.claims.stay_awake()

    async def _rest(self, *, was_idle: bool) -> None:
        if not self._burst:
            if not self.claims.needs_a_slot:
                self._slots.resting = True
                await self.claims.rest()
            elif not self.free_slots:  # else one has become free meanwhile
                await self._wait_for_slots()
        # Tasks held during the claim may have been released since, and be due again.
        elif was_idle:
            self._stopped = True
        elif self._slots.taken:
            await self._slots.changed()

    # What the backend asks and tells.

    @property
    def worker_id(self) -> str:
        return self._member.id

    @property
    def served(self) -> Served:
        return self._serving.served()

    @property
    def free_slots(self) -> int:
        return self._slots.free

    @property
    def has_room_to_guess(self) -> bool:
        return self._slots.room > 1 and not self._stopped

    def are_short(self, names: Iterable[str]) -> bool:
        return self._slots.prefetch.are_short(names)

    def held(self) -> set[Lease]:
        # What was handed on is ours too: as undelivered it would be given back, or delivered a second time.
        handed_on = self._handed_on.tasks if self._handed_on is not None else ()
        return {Lease(c.id, c.token) for c in (*(a.claimed for a in self._held()), *handed_on)}

    async def in_doubt(self) -> None:
        await self._begin_limit.lift()

    def nudge(self) -> None:
        self._slots.nudge()

    def take(self, found: Found) -> None:
        self._hand_on(1, found, more=False)

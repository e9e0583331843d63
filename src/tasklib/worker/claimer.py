"""Claiming: as many tasks as there are free slots, as soon as there are some."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psycopg

from tasklib.config import Config
from tasklib.db.failures import is_bad_data
from tasklib.db.reconnecting import ReconnectingConnection, backoff
from tasklib.errors import DatabaseUnavailable
from tasklib.events import DatabaseLost, Events, TasksClaimed
from tasklib.stats import StatsCollector
from tasklib.store import claim, settle
from tasklib.store.claim import Claimed, Lane, Served
from tasklib.store.settle import Lease
from tasklib.worker.attempt import Attempt
from tasklib.worker.begin_limit import BeginLimit
from tasklib.worker.claim_cursor import ClaimCursor
from tasklib.worker.sleep import LONG_AWAKE_SECONDS, Sleep
from tasklib.worker.slots import BATCH, Slots
from tasklib.worker.timing import eager_task
from tasklib.worker.wakeup import Wakeup

_DOUBT_SECONDS = 60.0
"""For how long after a lost answer we look what else is leased to us."""
_LOOK_AGAIN_SECONDS = 1.0


class Claimer:
    """Asks for tasks until told to stop; `burst` stops by itself when nothing is due and nothing runs."""

    def __init__(
        self,
        config: Config,
        db: ReconnectingConnection,
        slots: Slots,
        wakeup: Wakeup,
        events: Events,
        *,
        served: Callable[[], Served],
        worker_id: Callable[[], str],
        start: Callable[[list[Claimed], str, float], None],
        held: Callable[[], Sequence[Attempt]],
        begin_limit: BeginLimit,
        collector: StatsCollector,
        burst: bool = False,
    ) -> None:
        self._config = config
        self._db = db
        self._slots = slots
        self._wakeup = wakeup
        self._events = events
        self._served = served
        self._worker_id = worker_id
        self._start = start
        self._held = held
        self._begin_limit = begin_limit
        self._collector = collector
        self._burst = burst
        self._stopped = False
        self._doubt_until = self._look_again_at = 0.0
        self._sleep = Sleep(db, wakeup, served=served, worker_id=worker_id)
        self._cursor = ClaimCursor(slots.prefetch)
        self._guessing: asyncio.Task[None] | None = None
        wakeup.on_waking = self._guess
        self._terms = {
            "lease_seconds": config.lock_timeout_seconds,
            "medium_after": config.promote_to_medium_after_seconds,
            "high_after": config.promote_to_high_after_seconds,
        }

    def stop(self) -> None:
        """No further claims. One that is under way ends, and what it brings is handed on."""
        self._stopped = True
        self._wakeup.ring()
        self._slots.nudge()

    async def run(self) -> None:
        failures = 0
        while not self._stopped:
            self._slots.ahead = self._slots.prefetch.count if self._may_claim_ahead else 0
            was_idle = self._slots.taken == 0
            try:
                if not self._slots.worth_claiming:
                    await self._wait_for_slots()
                elif not await self._claim() and not self._stopped:
                    await self._rest(was_idle=was_idle)
                failures = 0
            except DatabaseUnavailable:
                self._doubt_until = time.monotonic() + _DOUBT_SECONDS
                self._look_again_at = 0.0
                await asyncio.sleep(backoff(failures))
                failures += 1
            except psycopg.Error as e:
                # A row that somebody wrote by hand: it must not end this worker, and then the next one.
                if not is_bad_data(e):
                    raise
                self._events.emit(DatabaseLost("claim", str(e)))
                await asyncio.sleep(backoff(failures))
                failures += 1

    @property
    def _may_claim_ahead(self) -> bool:
        """Only what is known to be short. A look at all lanes may bring tasks that run at most once: not ahead."""
        return self._cursor.are_short and (self._cursor.worth_going_on or not self._served().at_most_once)

    async def _give_back_unknown(self) -> None:
        """Release what is leased to us though we know nothing of it: the answer to a claim was lost.

        That claim may commit only now, or later, so this is repeated for a while. What turns up later still is found
        when its lease ends.
        """
        worker_id = self._worker_id()
        await self._begin_limit.lift()
        leased = await self._db.run(claim.leases_of(worker_id))
        held = {(a.claimed.id, a.claimed.token) for a in self._held()}
        unknown = sorted(Lease(c.id, c.token) for c in leased if (c.id, c.token) not in held)
        if unknown:
            await self._db.run(settle.release(unknown, worker_id))
        self._look_again_at = time.monotonic() + _LOOK_AGAIN_SECONDS

    async def _wait_for_slots(self) -> None:
        if self._sleep.is_announced:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONG_AWAKE_SECONDS):
                    await self._slots.changed()
            await self._sleep.stay_awake()
        else:
            await self._slots.changed()

    async def _claim(self) -> bool:
        await self._sleep.stay_awake()
        self._wakeup.arm()
        before, worker_id = time.monotonic(), self._worker_id()
        if self._look_again_at < before < self._doubt_until:
            await self._give_back_unknown()
            before = time.monotonic()
        if going_on := self._cursor.worth_going_on:
            asked = min(self._slots.room, BATCH)
            query = claim.claim_on(self._cursor.behind, asked, worker_id, **self._terms)
        else:
            # Who knows what it will bring: no more than the slots will be free for in a moment.
            served = self._served()
            room = self._slots.size - self._slots.taken if served.at_most_once else self._slots.room
            asked = min(room, self._slots.size, BATCH)
            if asked <= 0:
                return True  # there is work, and no slot for it
            query = claim.claim(served, asked, worker_id, **self._terms)
        claimed = await self._db.run(query)
        if going_on:
            self._cursor.went_on(asked, claimed)
        else:
            self._cursor.looked(asked, claimed, time.monotonic() - before)
        if claimed:
            # Counted from before the statement was sent, so that our idea of the lease ends before the database's.
            deadline = before + self._config.lock_timeout_seconds
            self._hand_on(asked, claimed, worker_id, deadline, more=len(claimed) == asked)
        return bool(claimed) or (going_on and await self._claim())

    def _guess(self) -> None:
        """A ring, most likely for the lane served last: ask for its next task at once, look at all when it runs."""
        if self._guessing is not None:
            return
        # Only with another slot to spare for whatever is better.
        if self._cursor.last is not None and self._slots.room > 1 and not self._stopped:
            self._guessing = eager_task(self._claim_next(self._cursor.last), asyncio.get_running_loop())
        else:
            self._wakeup.wake()

    async def _claim_next(self, lane: Lane) -> None:
        before, worker_id = time.monotonic(), self._worker_id()

        def hand_on(claimed: list[Claimed]) -> None:
            if claimed:
                self._hand_on(1, claimed, worker_id, before + self._config.lock_timeout_seconds, more=False)

        try:
            await self._db.run(claim.claim_next(lane, worker_id, **self._terms), hand_on)
        finally:
            self._wakeup.wake()

    def _hand_on(
        self, asked: int, claimed: list[Claimed], worker_id: str, lease_deadline: float, *, more: bool
    ) -> None:
        self._wakeup.busy()
        self._slots.take(len(claimed))
        if self._events.routine:
            self._events.emit_routine(TasksClaimed(asked, len(claimed)))
        if more:
            # The next claim is sent first, so that the database works on it while these are started.
            asyncio.get_running_loop().call_soon(self._start, claimed, worker_id, lease_deadline)
        else:
            self._start(claimed, worker_id, lease_deadline)
        self._collector.claimed(claimed)

    async def _rest(self, *, was_idle: bool) -> None:
        if self._burst:
            # What was held when we asked may have been given back since, and be due again.
            if was_idle:
                self._stopped = True
            elif self._slots.taken:
                await self._slots.changed()
            return
        try:
            await self._sleep.rest()
        except asyncio.CancelledError:
            if self._guessing is not None:  # nobody would start what it brings
                self._guessing.cancel()
                await asyncio.gather(self._guessing, return_exceptions=True)
            raise
        guessing, self._guessing = self._guessing, None
        if guessing is not None:
            await guessing

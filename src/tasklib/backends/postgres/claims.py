"""Claiming for one worker: where its last claim ended, what a notification is most likely about, and how it sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from tasklib.backends.backend import ClaimHost, Found
from tasklib.backends.postgres.flow_arguments import with_results
from tasklib.backends.postgres.lanes import Lanes
from tasklib.backends.postgres.registration import give_back, undelivered
from tasklib.backends.postgres.sleep import LONG_AWAKE_SECONDS, Sleep, Wakeup
from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingPool
from tasklib.errors import WorkerNotFound
from tasklib.executors.functions import eager_task
from tasklib.store import claim
from tasklib.store.claim import Claimed, Lane, Place, Served

_LOOK_EVERY_SECONDS = 0.1
_SHARE = 20
"""Claims from the beginning take at most one part in so many of a busy worker's time."""
_MANY = 100
"""Smaller claims of longer tasks begin at the beginning: that costs little, and sees what was committed late."""
_DOUBT_SECONDS = 60.0
"""For how long after a lost answer we check which other tasks are leased to us."""
_DOUBT_EVERY_SECONDS = 1.0
_POLLS_PER_CLAIM = 8
"""The others only ask whether a task is due."""


class ClaimCursor:
    """The positions behind the last claim's tasks, from which the next claim can resume.

    Claimed rows stay in the index until VACUUM, and while any snapshot in the database might see them (a report, a
    backup): a claim from the beginning reads past all of them. So a worker that claims much resumes behind its last
    claims, and begins at the beginning now and then, for rows that were committed late.
    """

    def __init__(self, are_short: Callable[[Iterable[str]], bool]) -> None:
        self.behind: dict[Lane, Place] = {}
        self.last: Lane | None = None
        """The lane of the last task that was claimed."""
        self._names = frozenset[str]()
        self._are_short = are_short
        self._until = 0.0

    @property
    def are_short(self) -> bool:
        """Whether the functions claimed last are known to be short: more of their tasks may be prefetched."""
        return bool(self._names) and self._are_short(self._names)

    @property
    def worth_going_on(self) -> bool:
        return bool(self.behind) and time.monotonic() < self._until

    def looked(self, asked: int, claimed: Sequence[Claimed], seconds: float) -> None:
        """A claim from the beginning returned these, in order, and took so long."""
        self.behind.clear()
        self._until = time.monotonic() + max(_LOOK_EVERY_SECONDS, _SHARE * seconds)
        self.went_on(asked, claimed)

    def went_on(self, asked: int, claimed: Sequence[Claimed]) -> None:
        """A resumed claim returned these, in order."""
        last = {(c.queue, c.lane_name, c.required_capabilities, c.priority): c for c in claimed}
        # By due time: within a lane a task that waiting has raised comes first, and is the older one.
        behind = {c.lane: c.place for c in last.values()}
        self.last = next(reversed(behind), self.last)
        self._names = frozenset([c.name for c in claimed])
        if len(claimed) == asked and (self.are_short or asked >= _MANY):
            self.behind.update(behind)
        else:
            self.behind.clear()  # the lanes are empty, or others may be better by now


class PostgresClaims:
    """Claims by SQL, and sleeps while there is nothing to claim."""

    def __init__(
        self,
        config: Config,
        db: ReconnectingPool,
        wakeup: Wakeup,
        host: ClaimHost,
        counted: Callable[[], Awaitable[None]],
    ) -> None:
        self._lease_seconds = config.lock_timeout_seconds
        self._db = db
        self._wakeup = wakeup
        self._host = host
        self._counted = counted
        self._cursor = ClaimCursor(host.are_short)
        self._guessing: asyncio.Task[None] | None = None
        self._has_seen_all = False
        """Whether the last plain claim has found all there was."""
        self._doubt_until = self._doubt_at = 0.0
        wakeup.on_waking, wakeup.on_summon = self._guess, host.nudge
        self._terms = {
            "lease_seconds": config.lock_timeout_seconds,
            "medium_after": config.promote_to_medium_after_seconds,
            "high_after": config.promote_to_high_after_seconds,
        }
        self._lanes = Lanes(db, **self._terms)
        self.sleep = Sleep(db, self._lanes)

    @property
    def goes_on(self) -> bool:
        return self._cursor.worth_going_on

    @property
    def are_short(self) -> bool:
        return self._cursor.are_short

    @property
    def needs_a_slot(self) -> bool:
        return self._lanes.needs_a_slot

    @property
    def stay_awake_after(self) -> float | None:
        known = (LONG_AWAKE_SECONDS if self.sleep.is_announced else None, self._lanes.look_in)
        return min((seconds for seconds in known if seconds is not None), default=None)

    async def claim(self, limit: int) -> Found:
        await self.sleep.stay_awake()
        self._wakeup.arm()
        if self._doubt_at < time.monotonic() < self._doubt_until:
            await self._give_back_unknown()
        # From before the statement is sent, so that our idea of the lease ends before the database's.
        worker_id, served = self._host.worker_id, self._host.served
        if time.monotonic() >= self._lanes.look_at and not self._cursor.worth_going_on:
            await self._lanes.look(served)
        before = time.monotonic()
        self._has_seen_all = False
        plain = partial(self._claim, served, worker_id)
        claimed = await self._lanes.in_turns(served, limit, self._host.free_slots, worker_id, plain)
        if self._lanes.has_left_some:
            self._wakeup.owe()
        elif self._has_seen_all and self._lanes.has_seen_all:
            self._wakeup.answered()
        if claimed:
            self._wakeup.busy()
            if claim.need_results(claimed):
                claimed = await with_results(self._db, claimed)
        return Found(claimed, worker_id, before + self._lease_seconds)

    async def _claim(self, served: Served, worker_id: str, limit: int) -> list[Claimed]:
        """The plain claim: tasks that are not behind limits."""
        cursor, before = self._cursor, time.monotonic()
        if cursor.worth_going_on:
            claimed = await self._db.run(claim.claim(served, limit, worker_id, cursor.behind, **self._terms))
            cursor.went_on(limit, claimed)
        else:
            claimed = await self._db.run(claim.claim(served, limit, worker_id, **self._terms))
            self._has_seen_all = len(claimed) < limit
            cursor.looked(limit, claimed, seconds := time.monotonic() - before)
            self._lanes.claimed_within(seconds)
        return claimed

    async def rest(self) -> None:
        try:
            await self._sleep()
        except asyncio.CancelledError:
            if self._guessing is not None:  # nothing would start what it brings
                self._guessing.cancel()
                await asyncio.gather(self._guessing, return_exceptions=True)
            raise
        guessing, self._guessing = self._guessing, None
        if guessing is not None:
            await guessing

    async def _sleep(self) -> None:
        try:
            for _ in range(_POLLS_PER_CLAIM):
                if await self.sleep.rest(self._wakeup, self._host.worker_id, self._host.served):
                    break
        except WorkerNotFound:
            await self._wakeup.sleep(None)  # not one of the fleet just now; the poll will do

    async def counted(self) -> None:
        await self._counted()

    async def stay_awake(self) -> None:
        await self.sleep.stay_awake()
        if self._lanes.look_in == 0:  # a rate has a token by now, and no slot here is free for its task
            self._lanes.passed_on()
            await self._pass_on()

    async def pass_on(self) -> None:
        if self._wakeup.owes:
            self._wakeup.arm()
            await self._pass_on()
            self._wakeup.answered()

    async def leave(self) -> None:
        if self.sleep.is_announced:
            await self.sleep.withdraw()
            await self._pass_on()

    async def _pass_on(self) -> None:
        await self._db.run(claim.pass_on(self._host.served, self._host.worker_id))

    def lost(self) -> None:
        self._doubt_until, self._doubt_at = time.monotonic() + _DOUBT_SECONDS, 0.0
        self._lanes.suspect()

    def stop(self) -> None:
        self._wakeup.ring()

    async def _give_back_unknown(self) -> None:
        """Release tasks that are leased to us and unknown here: the answer to a claim was lost.

        That claim may commit only now, or later, so this is repeated for a while. What turns up later still is found
        when its lease ends.
        """
        worker_id = self._host.worker_id
        await self._host.in_doubt()
        await give_back(self._db, worker_id, await undelivered(self._db, worker_id, self._host.held()))
        self._doubt_at = time.monotonic() + _DOUBT_EVERY_SECONDS

    def _guess(self) -> None:
        """A notification, most likely for the lane served last: claim its next task at once, then scan all lanes."""
        if self._guessing is not None:
            return
        if self._cursor.last is not None and self._host.has_room_to_guess:
            self._guessing = eager_task(self._claim_next(self._cursor.last), asyncio.get_running_loop())
        else:
            self._wakeup.wake()

    async def _claim_next(self, lane: Lane) -> None:
        worker_id, deadline = self._host.worker_id, time.monotonic() + self._lease_seconds
        try:
            names = self._host.served.names
            query = claim.claim_next(lane, None if names is None else tuple(names), worker_id, **self._terms)
            claimed = await self._db.run(query, partial(self._hand_on, worker_id, deadline))
            if claim.need_results(claimed):
                self._host.take(Found(await with_results(self._db, claimed), worker_id, deadline))
        finally:
            self._wakeup.wake()

    def _hand_on(self, worker_id: str, deadline: float, claimed: list[Claimed]) -> None:
        if claimed:
            self._wakeup.busy()
            if not claim.need_results(claimed):
                self._host.take(Found(claimed, worker_id, deadline))

"""Long polls: claiming for a worker that came over HTTP, and sleeping for it (backends/postgres/sleep.py)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tasklib.backends.postgres.flow_arguments import with_results
from tasklib.backends.postgres.notifier import Notifier
from tasklib.backends.postgres.registration import give_back, undelivered
from tasklib.backends.postgres.remote.members import Member, Members
from tasklib.backends.postgres.sleep import Wakeup, not_registered
from tasklib.config import Config
from tasklib.db.query import Runs
from tasklib.errors import DatabaseUnavailable
from tasklib.events import Events
from tasklib.stats import StatsCollector
from tasklib.store import claim, settle, stats
from tasklib.store.claim import Claimed, Served
from tasklib.store.settle import Lease

MOST_TASKS = 500
"""In one answer. Larger ones gain nothing."""
_AWAY_SECONDS = 1.0
"""A worker that doesn't poll for this long is busy: producers need not notify on its behalf."""
_LATE_SECONDS = 0.5
_NO_EVENTS = Events()
Gone = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Poll:
    """What a worker asks for."""

    limit: int
    wait_seconds: float
    capabilities: list[str] | None
    holding: list[Lease] | None
    reports_begin: bool = False
    free_slots: int | None = None
    """How many of them may be behind limits, which are never claimed ahead; None: all."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What it gets; the leases began so many seconds after it had asked, or later."""

    tasks: list[Claimed]
    waited_seconds: float


class Polls:
    """Answers them."""

    def __init__(
        self,
        config: Config,
        db: Runs,
        notifier: Notifier,
        members: Members,
        counted: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._counted = counted
        self._notifier = notifier
        self._members = members
        self._db = db
        self._aside: set[asyncio.Task[None]] = set()
        notifier.on_away = self._woken_while_away
        self._terms = {
            "lease_seconds": config.lock_timeout_seconds,
            "medium_after": config.promote_to_medium_after_seconds,
            "high_after": config.promote_to_high_after_seconds,
        }

    async def answer(self, member: Member, poll: Poll, gone: Gone) -> Delivery:
        """Tasks as soon as there are some; none when the time is up, a newer poll has come, or the worker drains.

        A poll that comes while the worker drains waits too: a worker that polls on must not do so in a hot loop.
        """
        began = time.monotonic()
        member.newest_poll += 1
        turn = member.newest_poll
        if member.polling is not None:
            member.polling.ring()  # the older poll is not read any more
        await member.sleep.stay_awake()
        if not poll.wait_seconds:
            await self._counted()  # a burst ends after a poll without tasks: those after the ones it settled come first
        if poll.holding is not None:
            waited = time.monotonic() - began
            if tasks := await self._undelivered(member, poll.holding):
                return await self._if_it_may_take(member, Delivery(tasks, waited))
        wakeup = Wakeup(self._notifier, self._config.poll_interval_seconds, _NO_EVENTS)
        sleepers = self._notifier.sleepers
        sleepers[member.id] = summon = wakeup.summon
        member.polling = wakeup
        try:
            with self._notifier.heard_by(wakeup.hear):
                return await self._until_found(member, poll, turn, gone, wakeup, began)
        finally:
            if sleepers.get(member.id) is summon:
                del sleepers[member.id]
            if member.polling is wakeup:
                member.polling = None
            if wakeup.owes:
                self._pass_on(member)
            elif (seconds := member.lanes.look_in) is not None:
                asyncio.get_running_loop().call_later(seconds, self._pass_on_if_away, member, turn)

    async def _until_found(
        self, member: Member, poll: Poll, turn: int, gone: Gone, wakeup: Wakeup, began: float
    ) -> Delivery:
        came_draining = member.is_draining
        served = Served(member.served.names, member.served.queues, poll.capabilities or member.served.capabilities)
        while not self._notifier.is_stopped and (came_draining or not member.is_draining):
            wakeup.arm()
            waited = time.monotonic() - began
            if member.is_draining:
                await wakeup.sleep(None, began + poll.wait_seconds - time.monotonic())
                if turn != member.newest_poll or waited >= poll.wait_seconds or await gone():
                    break
                continue
            if time.monotonic() >= member.lanes.look_at:
                await member.lanes.look(served)
            free = poll.limit if poll.free_slots is None else min(poll.free_slots, poll.limit)
            plain = partial(self._claim, member, served)
            tasks = await member.lanes.in_turns(served, poll.limit, free, member.id, plain)
            if member.lanes.has_left_some:
                wakeup.owe()
            elif len(tasks) < poll.limit and member.lanes.has_seen_all:
                wakeup.answered()
            if tasks:
                if claim.need_results(tasks):
                    tasks = await with_results(self._db, tasks)
                await self._count_promoted(tasks)
                return await self._handed_out(member, turn, poll, Delivery(tasks, waited), gone)
            left = began + poll.wait_seconds - time.monotonic()
            if left <= 0 or turn != member.newest_poll:
                break
            await member.sleep.rest(wakeup, member.id, served, left)
            member.sure_until = 0.0
            if turn != member.newest_poll or await gone():
                break
        return Delivery([], time.monotonic() - began)

    async def _claim(self, member: Member, served: Served, limit: int) -> list[Claimed]:
        looked_at = time.monotonic()
        tasks = await self._db.run(claim.claim(served, limit, member.id, **self._terms))
        member.lanes.claimed_within(time.monotonic() - looked_at)
        return tasks

    async def _count_promoted(self, tasks: Sequence[Claimed]) -> None:
        """For metrics: those that waiting has raised. There are rarely any, so this rarely costs a statement."""
        collector = StatsCollector()
        collector.claimed(tasks)
        if promoted := [stat for stat in collector.take() if stat.key.outcome == "promoted"]:
            with suppress(DatabaseUnavailable):  # what was claimed goes out all the same
                await self._db.run(stats.add(promoted))

    async def close(self) -> None:
        await asyncio.gather(*self._aside, return_exceptions=True)

    async def _undelivered(self, member: Member, holding: Sequence[Lease]) -> list[Claimed]:
        """Tasks leased to the worker and unknown to it: an answer was lost. Their leases are renewed."""
        lost = await undelivered(self._db, member.id, set(holding))
        if not lost:
            return []
        leases = sorted(Lease(c.id, c.token) for c in lost)
        kept = await self._db.run(settle.extend(leases, member.id, self._config.lock_timeout_seconds))
        return await with_results(self._db, [c for c in lost if c.id in kept])

    async def _handed_out(self, member: Member, turn: int, poll: Poll, found: Delivery, gone: Gone) -> Delivery:
        """If the client is still connected. If the answer is lost nevertheless, the next poll asks for it."""
        if turn != member.newest_poll or member.is_draining or await gone():
            await give_back(self._db, member.id, found.tasks)
            return Delivery([], found.waited_seconds)
        crashed = sorted((Lease(task.id, task.token), False) for task in found.tasks if task.crash_count)
        if crashed and not poll.reports_begin:
            # It doesn't report starts, so handing out counts as the start: otherwise they would never count as poison.
            await self._db.run(settle.begin(crashed, member.id))
        if member.sleep.is_announced:
            asyncio.get_running_loop().call_later(_AWAY_SECONDS, self._if_away, member, turn)
        return await self._if_it_may_take(member, found)

    async def _if_it_may_take(self, member: Member, found: Delivery) -> Delivery:
        """Not if its token has ended, or it was declared dead: its tasks would be taken from it again."""
        if member.sure_until > time.monotonic():
            return found
        if await self._db.run(claim.may_take(member.id)):
            member.is_known_to_live()
            return found
        await give_back(self._db, member.id, found.tasks)
        if not await self._members.lives(member):
            raise not_registered(member.id)
        # Late with its heartbeat, or its token has ended: without a pause it would poll, and we claim, in a hot loop.
        await asyncio.sleep(_LATE_SECONDS)
        return Delivery([], found.waited_seconds)

    def _if_away(self, member: Member, turn: int) -> None:
        if turn == member.newest_poll and member.sleep.is_announced and not self._notifier.is_stopped:
            self._run_aside(member.sleep.withdraw())

    def _pass_on_if_away(self, member: Member, turn: int) -> None:
        """A limit is expected to have room by now."""
        if turn == member.newest_poll:
            self._pass_on(member)

    def _woken_while_away(self, worker_id: str) -> None:
        """A producer relies on a worker that doesn't poll just now."""
        member = self._members.known(worker_id)
        if member is not None:
            self._pass_on(member)

    def _pass_on(self, member: Member) -> None:
        """Wake others in its stead; if the database is away, their polls find the tasks."""
        if not self._notifier.is_stopped:
            self._run_aside(self._db.run(claim.pass_on(member.served, member.id)))

    def _run_aside(self, work: Coroutine[Any, Any, None]) -> None:
        async def aside() -> None:
            with suppress(DatabaseUnavailable):
                await work

        task = asyncio.create_task(aside())
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

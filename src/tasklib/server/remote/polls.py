"""Long polls: claiming for a worker, and falling asleep for it so that no task is missed.

The rules are those of a worker with a database of its own (worker/sleep.py): tell producers that it sleeps, look again
until all who may not have seen that are over, and only then rely on being notified. The poll beside it never ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tasklib.config import Config
from tasklib.errors import DatabaseUnavailable
from tasklib.server.notifier import Notifier
from tasklib.server.remote.links import Links
from tasklib.server.remote.registered import Member, Members, not_found
from tasklib.stats import StatsCollector
from tasklib.store import claim, fleet, settle, stats
from tasklib.store.claim import Claimed, Served
from tasklib.store.settle import Lease

MOST_TASKS = 500
"""In one answer. Larger ones gain nothing."""
_LONG_AWAKE_SECONDS = 0.1
_AWAY_SECONDS = 1.0
"""A worker that doesn't poll for this long has enough to do: producers need not notify for its sake."""
_LATE_SECONDS = 0.5
_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.002, 0.1
Gone = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Poll:
    """What a worker asks for."""

    limit: int
    wait_seconds: float
    capabilities: list[str] | None
    holding: list[Lease] | None
    reports_begin: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What it gets; the leases began so many seconds after it had asked, or later."""

    tasks: list[Claimed]
    waited_seconds: float


class Polls:
    """Answers them."""

    def __init__(
        self, config: Config, notifier: Notifier, members: Members, claiming: Links, settling: Links, control: Links
    ) -> None:
        self._config = config
        self._notifier = notifier
        self._members = members
        self._claiming = claiming
        self._settling = settling
        self._control = control
        self._withdrawals: set[asyncio.Task[None]] = set()
        self._terms = {
            "lease_seconds": config.lock_timeout_seconds,
            "medium_after": config.promote_to_medium_after_seconds,
            "high_after": config.promote_to_high_after_seconds,
        }

    async def answer(self, member: Member, poll: Poll, gone: Gone) -> Found:
        """Tasks as soon as there are some; none when the time is up, a newer poll has come, or the worker drains.

        A poll that comes while the worker drains waits too: a worker that polls on must not do so in a hot loop.
        """
        began, came_draining = time.monotonic(), member.is_draining
        member.newest_poll += 1
        turn = member.newest_poll
        served = Served(member.served.names, member.served.queues, poll.capabilities or member.served.capabilities)
        pause = _FIRST_LOOK_SECONDS
        await self._stay_awake(member)
        if poll.holding is not None:
            waited = time.monotonic() - began
            if tasks := await self._undelivered(member, poll.holding):
                return await self._if_it_may_take(member, Found(tasks, waited))
        while not self._notifier.is_stopped and (came_draining or not member.is_draining):
            mark, waited = self._notifier.mark(), time.monotonic() - began
            if member.is_draining:
                await self._notifier.wait(began + poll.wait_seconds - time.monotonic(), since=mark)
                if turn != member.newest_poll or waited >= poll.wait_seconds or await gone():
                    break
                continue
            tasks = await self._claiming.run(claim.claim(served, poll.limit, member.id, **self._terms))
            if tasks:
                await self._count_promoted(tasks)
                return await self._handed_out(member, turn, poll, Found(tasks, waited), gone)
            left = began + poll.wait_seconds - time.monotonic()
            if left <= 0:
                break
            pause = await self._rest(member, served, mark, left, pause)
            member.sure_until = 0.0
            if turn != member.newest_poll or await gone():
                break
        return Found([], time.monotonic() - began)

    async def _count_promoted(self, tasks: Sequence[Claimed]) -> None:
        """For metrics: those that waiting has raised. There are rarely any, so this rarely costs a statement."""
        collector = StatsCollector()
        collector.claimed(tasks)
        if promoted := [stat for stat in collector.take() if stat.key.outcome == "promoted"]:
            with suppress(DatabaseUnavailable):  # what was claimed goes out all the same
                await self._claiming.run(stats.add(promoted))

    async def close(self) -> None:
        await asyncio.gather(*self._withdrawals, return_exceptions=True)

    async def release(self, member: Member, tasks: Sequence[Claimed]) -> None:
        """Give back what nobody will run."""
        leases = sorted(Lease(task.id, task.token) for task in tasks)
        if leases:
            await self._settling.run(settle.release(leases, member.id))

    async def _undelivered(self, member: Member, holding: Sequence[Lease]) -> list[Claimed]:
        """What is leased to the worker though it knows nothing of it: an answer was lost. Its leases begin anew."""
        held = set(holding)
        lost = [c for c in await self._claiming.run(claim.leases_of(member.id)) if Lease(c.id, c.token) not in held]
        if not lost:
            return []
        leases = sorted(Lease(c.id, c.token) for c in lost)
        kept = await self._settling.run(settle.extend(leases, member.id, self._config.lock_timeout_seconds))
        return [c for c in lost if c.id in kept]

    async def _handed_out(self, member: Member, turn: int, poll: Poll, found: Found, gone: Gone) -> Found:
        """If somebody is there to take it. Should the answer be lost all the same, the next poll asks for it."""
        if turn != member.newest_poll or member.is_draining or await gone():
            await self.release(member, found.tasks)
            return Found([], found.waited_seconds)
        crashed = sorted((Lease(task.id, task.token), False) for task in found.tasks if task.crash_count)
        if crashed and not poll.reports_begin:
            # It won't tell, so handing them out is the beginning: else they would never be given up as poison.
            await self._settling.run(settle.begin(crashed, member.id))
        if member.is_announced:
            asyncio.get_running_loop().call_later(_AWAY_SECONDS, self._if_away, member, turn)
        return await self._if_it_may_take(member, found)

    async def _if_it_may_take(self, member: Member, found: Found) -> Found:
        """Not if its token has ended, or it was declared dead: what it ran would be taken from it again."""
        if member.sure_until > time.monotonic():
            return found
        if await self._control.run(fleet.may_take(member.id)):
            member.is_known_to_live()
            return found
        await self.release(member, found.tasks)
        if not await self._members.lives(member):
            raise not_found(member.id)
        # Late with its heartbeat, or its token has ended: without a pause it would poll, and we claim, in a hot loop.
        await asyncio.sleep(_LATE_SECONDS)
        return Found([], found.waited_seconds)

    async def _rest(self, member: Member, served: Served, mark: int, left: float, pause: float) -> float:
        """Nothing was found: sleep, or return at once if it is worth another look. The pause before the look after."""
        if self._notifier.is_listening and not member.relies_on_notification and member.unaware_before is None:
            if not await self._control.run(fleet.sleeps(member.id, True)):
                raise not_found(member.id)
            member.is_announced, member.awake_since = True, time.monotonic()
            member.unaware_before = await self._claiming.run(claim.next_writer())
        outlook = await self._claiming.run(claim.outlook(served))
        if member.unaware_before is not None:
            if outlook.oldest_writer >= member.unaware_before:
                # The next look is the last that is needed.
                member.unaware_before, member.relies_on_notification = None, True
                return pause
            await self._notifier.wait(min(pause, left), since=mark)
            return min(2 * pause, _LONGEST_LOOK_SECONDS)
        longest = min(left, self._config.poll_interval_seconds)
        due = outlook.next_due_seconds
        await self._notifier.wait(longest if due is None else min(longest, max(0.0, due)), since=mark)
        member.awake_since = time.monotonic()
        return _FIRST_LOOK_SECONDS

    async def _stay_awake(self, member: Member) -> None:
        """There is work: once it has gone on for a while, producers need not notify."""
        if member.is_announced and time.monotonic() - member.awake_since > _LONG_AWAKE_SECONDS:
            await self._withdraw(member)

    def _if_away(self, member: Member, turn: int) -> None:
        if turn == member.newest_poll and member.is_announced and not self._notifier.is_stopped:
            task = asyncio.create_task(self._withdraw(member))
            self._withdrawals.add(task)
            task.add_done_callback(self._withdrawals.discard)

    async def _withdraw(self, member: Member) -> None:
        member.is_announced = member.relies_on_notification = False
        member.unaware_before = None
        try:
            await self._control.run(fleet.sleeps(member.id, False))
        except DatabaseUnavailable:
            member.is_announced = True  # it costs producers a little until it is withdrawn

"""The lanes of one worker beside those of its plain claim.

**Behind limits.** Plain claims leave such tasks alone (`sql/claim/fragments/paused.sql`), so a worker that doesn't know
of a limit never breaks it. It asks for them by a statement of their own, in turns with the plain claim and in turns
between lanes, and only while there are any.

**Not served.** A claim reads past tasks that the worker doesn't serve, which is exact, and takes about a microsecond
for each. Where there are many, they are set apart once, for all workers: into lanes of their names (`set_apart.sql`),
where those that serve them find them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from tasklib.db.query import Runs
from tasklib.store import claim
from tasklib.store.claim import Claimed, Outlook, Served
from tasklib.store.limited_claim import NAMED_AT_ONCE, Turn, claim_limited, name_lanes

_REMEMBERED_SECONDS = 60.0
"""For how long a worker that ran tasks behind limits goes on asking for them when none are left."""
_NAME_EVERY_SECONDS = 0.05
_MOST_LOOKS = 100
"""So many claims in a row may find only lanes that are full, before others get a chance."""
_BUSY_SECONDS = 0.25
"""Then the next one waits for so long."""
_LOCKED_SECONDS = 0.01
"""A claim that found a limit locked is repeated so soon. Others hold it for about a millisecond."""
_SLOW_SECONDS = 0.02
"""A claim from the beginning that takes longer may have read past many tasks that are not served."""
_LOOK_EVERY_SECONDS = 5.0
"""So often a worker that never rests looks whether there is anything behind limits by now."""
Plain = Callable[[int], Awaitable[list[Claimed]]]


class Lanes:
    """Whether anything is behind limits, whose turn it is, and when it is worth another look; and whether many tasks
    that are not served may be in the way."""

    def __init__(self, db: Runs, lease_seconds: float, medium_after: float, high_after: float) -> None:
        self._db = db
        self._terms = {"lease_seconds": lease_seconds, "medium_after": medium_after, "high_after": high_after}
        self._turn = Turn()
        self._goes_first = True
        self._wanted_until = 0.0
        self._names_are_limited = False
        self._named_at = 0.0
        self._are_held_up = False
        """Tasks of limited names could not be moved, because others hold them or move some of the same names."""
        self._limited_at: float | None = None
        self.look_at = 0.0
        """A claim from the beginning looks first if it is later than this: the first one, one after a slow one, and now
        and then another."""
        self.has_seen_all = True
        """Whether the last claims left nothing behind limits that other workers could take in this one's stead."""
        self.needs_a_slot = False
        """The last claims left tasks behind limits alone, because no slot was free for one."""
        self.has_left_some = False
        """The last claims held tasks locked for a moment that they then didn't lease: see `claim_limited`."""

    @property
    def is_wanted(self) -> bool:
        """Whether there is anything behind limits, as far as is known."""
        return time.monotonic() < self._wanted_until

    def learned(self, outlook: Outlook) -> bool:
        """What an outlook says; True if there is more to claim than was asked for."""
        knew, knew_names = self.is_wanted, self._names_are_limited
        self._names_are_limited = outlook.names_are_limited
        if outlook.is_limited:
            self._wanted_until = time.monotonic() + _REMEMBERED_SECONDS
        return (outlook.is_limited and not knew) or (outlook.names_are_limited and not knew_names)

    @property
    def look_in(self) -> float | None:
        """In how many seconds a limit is expected to have room for a task that waits; None: that is not known."""
        return None if self._limited_at is None else max(0.0, self._limited_at - time.monotonic())

    def passed_on(self) -> None:
        """Others were woken for what has become free."""
        self._limited_at = None

    def soonest(self, seconds: float | None) -> float | None:
        """When the next task is due, those behind limits included."""
        if self.look_in is None or self.needs_a_slot or not self.is_wanted:
            return seconds
        return self.look_in if seconds is None else min(self.look_in, seconds)

    def suspect(self) -> None:
        """Look before the next claim from the beginning."""
        self.look_at = 0.0

    def claimed_within(self, seconds: float) -> None:
        """A claim from the beginning took so long."""
        if seconds > _SLOW_SECONDS:
            self.suspect()

    async def look(self, served: Served) -> None:
        """Before a claim from the beginning: learn of limits, and set apart what is in the way."""
        is_crowded = True
        while is_crowded:
            outlook = await self._db.run(claim.outlook(served))
            self.learned(outlook)
            self.look_at = time.monotonic() + _LOOK_EVERY_SECONDS
            is_crowded = outlook.is_crowded and await self.set_apart(served)

    async def set_apart(self, served: Served) -> bool:
        """Whether there was something to set apart; not if other transactions hold all of it."""
        return await self._db.run(claim.set_apart(served)) > 0

    async def in_turns(self, served: Served, limit: int, free: int, worker_id: str, plain: Plain) -> list[Claimed]:
        """Up to so many tasks, of these no more than `free` behind limits: these first, and the next time last."""
        self.has_seen_all, self.needs_a_slot, self.has_left_some = True, False, False
        if not self.is_wanted:
            return await plain(limit)
        self._goes_first = not self._goes_first
        if not self._goes_first:
            claimed = await plain(limit)
            return claimed + await self._claim(served, min(free, limit) - len(claimed), worker_id)
        claimed = await self._claim(served, min(free, limit), worker_id)
        return claimed + await plain(limit - len(claimed)) if len(claimed) < limit else claimed

    async def _claim(self, served: Served, limit: int, worker_id: str) -> list[Claimed]:
        self.has_seen_all, self.needs_a_slot = False, limit <= 0
        if limit <= 0:
            return []
        began = time.monotonic()
        misplaced: list[tuple[str, str]] = []
        for _ in range(_MOST_LOOKS):
            moved = await self._name(misplaced)
            found = await self._db.run(claim_limited(served, limit, worker_id, self._turn, **self._terms))
            self._turn, soon = found.turn, found.next_seconds
            self._limited_at = None if soon is None else time.monotonic() + max(soon, 0.001)
            self.has_left_some |= found.has_left_some
            # Not what another claim had locked, nor lanes behind the last one that was looked at.
            self.has_seen_all = len(found.tasks) < limit and (soon is None or soon >= _LOCKED_SECONDS)
            if found.tasks:
                self._wanted_until = time.monotonic() + _REMEMBERED_SECONDS
                return found.tasks
            if soon is not None and 0 < soon < _LOCKED_SECONDS:
                await asyncio.sleep(soon)
            elif found.misplaced and (moved or not misplaced):
                misplaced = found.misplaced
            elif soon != 0 and (self._named_at >= began or not await self._name(at_once=True)):
                if self._are_held_up:
                    self._limited_at = time.monotonic() + _LOCKED_SECONDS
                return []
        self._limited_at = time.monotonic() + _BUSY_SECONDS
        self.has_seen_all = False
        return []

    async def _name(self, lanes: Sequence[tuple[str, str]] = (), *, at_once: bool = False) -> int:
        """Move tasks of limited names into the lanes of their limits: where a claim met some, or else of all lanes.

        The latter now and then while claims find tasks, and before a claim says that there are none.
        """
        is_early = time.monotonic() < self._named_at + _NAME_EVERY_SECONDS
        if not lanes and (not self._names_are_limited or (is_early and not at_once)):
            return 0
        named = await self._db.run(name_lanes(lanes))
        self._are_held_up = named.are_held_up
        # There may be more: look again before the next claim.
        self._named_at = 0.0 if named.moved >= NAMED_AT_ONCE else time.monotonic()
        return named.moved

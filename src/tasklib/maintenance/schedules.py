"""Duty: schedules. The leader makes the tasks of slots that are due, and sleeps until the next one.

    look ──▶ decide, in Python, from the stored slot ──▶ fire: one statement that changes nothing if the term is over,
     ▲                                                    the schedule has changed, or the slot has its task
     └── sleep until shortly before the next slot, a change, or a second ◀┘

The look is a moment ahead of the slots, so that at their time nothing is left to do but to send the statement.
A leader that dies anywhere in between leaves the stored slot as it was, or moved on together with its tasks.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import assert_never

from tasklib.db.query import Query, Runs
from tasklib.events import DutyFailed, Events, SlotsFired, SlotsSkipped
from tasklib.maintenance.failures import Failures
from tasklib.maintenance.leader import Leadership
from tasklib.schedules import Due, Schedule, Skipped, due, run_at
from tasklib.store import firing
from tasklib.store.firing import DueSchedule, Fired, Look, Offer, Run
from tasklib.store.fleet import Term
from tasklib.tasks.ids import new_ids

AT_ONCE = 1000
"""Schedules that one statement fires."""
MOST_RUNS = 5000
"""Tasks that one statement makes, but for those of its last schedule."""
HORIZON_SECONDS = 1.0
"""The longest sleep: a schedule that was made meanwhile is seen this soon, even without a notification."""
AHEAD_SECONDS = 0.25
"""So long before their time slots are looked at and decided."""
_AFTER_REFUSAL_SECONDS = 0.1
_TRY_UNREADABLE_AGAIN_SECONDS = 60.0


class Scheduler:
    """Fires what is due while this process leads."""

    def __init__(self, shared: Runs, own: Runs, leadership: Leadership, events: Events, *, shard: int = 0) -> None:
        # The connection of the other duties will do until there is a schedule to fire. Then it would make slots late.
        self._db = shared
        self._own = own
        self._leadership = leadership
        self._events = events
        self._shard = shard
        self._unreadable: dict[str, float] = {}
        self._changed = asyncio.Event()

    def look(self) -> None:
        """A schedule has changed, or may have."""
        self._changed.set()

    async def fire_forever(self, failures: Failures) -> None:
        while True:
            pause = HORIZON_SECONDS
            term = await self._leadership.term()
            self._changed.clear()  # before the look: a change during it is not slept through
            with failures.survived("schedules"):
                pause = await self.fire_due(term)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def fire_due(self, term: Term) -> float:
        """Fire what is due, or will be in a moment; returns after how many seconds to look again."""
        found = await self._db.run(
            firing.look(limit=AT_ONCE, unreadable=self._left_aside(), ahead_seconds=AHEAD_SECONDS)
        )
        read_at = time.monotonic()
        if found.due or found.next_slot is not None:
            self._db = self._own
        offers = [offer for row in _first(found) if (offer := self._offer(row)) is not None]
        if offers:
            statements = [self._statement(term, part) for part in _in_parts(offers)]
            if await self._changed_within(offers[0].seconds_until_due(found.now) - (time.monotonic() - read_at)):
                return 0.0
            taken = [await self._fire(part, statement) for part, statement in statements]
            return 0.0 if any(taken) else _AFTER_REFUSAL_SECONDS  # what was moved on may be due again
        if found.next_slot is None:
            return HORIZON_SECONDS
        until = (found.next_slot - found.now).total_seconds() - (time.monotonic() - read_at)
        return min(max(until - AHEAD_SECONDS if until > AHEAD_SECONDS else until, 0.0), HORIZON_SECONDS)

    async def _changed_within(self, seconds: float) -> bool:
        """Wait so long; True as soon as a schedule was changed."""
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
                    return True
        return False

    def _statement(self, term: Term, offers: list[Offer]) -> tuple[list[Offer], Query[Fired]]:
        number = sum(len(offer.runs) for offer in offers)
        return offers, firing.fire(term, offers, new_ids(number, self._shard))

    async def _fire(self, offers: Sequence[Offer], statement: Query[Fired]) -> int:
        fired = await self._db.run(statement)
        self._tell(offers, fired)
        return len(fired.schedules)

    def _offer(self, row: DueSchedule) -> Offer | None:
        """What to do with one schedule. One that can't be read keeps no other from being fired."""
        try:
            return decide(row)
        except Exception as e:
            self._unreadable[row.name] = time.monotonic() + _TRY_UNREADABLE_AGAIN_SECONDS
            self._events.emit(DutyFailed("schedules", f"schedule {row.name!r} can't be fired: {e}"))
            return None

    def _left_aside(self) -> list[str]:
        now = time.monotonic()
        self._unreadable = {name: until for name, until in self._unreadable.items() if until > now}
        return list(self._unreadable)

    def _tell(self, offers: Sequence[Offer], fired: Fired) -> None:
        if fired.tasks:
            tasks = tuple((each.schedule, each.id, each.slot.isoformat()) for each in fired.tasks)
            self._events.emit_routine(SlotsFired(tasks))
        for offer in offers:
            if offer.read.name in fired.schedules:
                for skip in offer.skips:
                    self._events.emit(SlotsSkipped(offer.read.name, skip.reason, skip.count, skip.first, skip.last))


def _first(found: Look) -> list[DueSchedule]:
    """What is due; else what will be due first, as it will be read then."""
    due = [row for row in found.due if not row.is_ahead]
    if due or not found.due or (first := found.due[0].next_slot) is None:
        return due
    return [row._replace(now=first) for row in found.due if row.next_slot == first]


def _in_parts(offers: Sequence[Offer]) -> Iterator[list[Offer]]:
    part: list[Offer] = []
    runs = 0
    for offer in offers:
        part.append(offer)
        runs += len(offer.runs)
        if runs >= MOST_RUNS:
            yield part
            part, runs = [], 0
    if part:
        yield part


def decide(row: DueSchedule) -> Offer | None:
    """What is to be done now; None if nothing is."""
    is_due = row.next_slot is not None and row.next_slot <= row.now
    if not is_due and row.waiting_slot is None:
        return None
    schedule = _schedule(row.rule)
    if row.keeps_failing:
        note = f"{schedule.pause_after} dead letters in a row"
        return Offer(row, row.next_slot, waiting_slot=row.waiting_slot, pause_note=note)
    decided = _due(row.rule, row.next_slot, row.now) if is_due and row.next_slot else Due((), (), row.next_slot)
    return _with_overlap(schedule, row, decided)


def _with_overlap(schedule: Schedule, row: DueSchedule, decided: Due) -> Offer | None:
    slots, running = decided.fire, bool(row.is_running)
    runs, left, waits, cancel = slots, slots[:0], None, False
    match schedule.overlap:
        case "allow":
            pass
        case "skip":
            runs, left = slots[: 0 if running else 1], slots[0 if running else 1 :]
        case "cancel_running":
            runs, left, cancel = slots[-1:], slots[:-1], bool(slots)
        case "wait_one":
            line = slots if row.waiting_slot is None else (row.waiting_slot, *slots)
            runs, line = line[: 0 if running else 1], line[0 if running else 1 :]
            waits, left = next(iter(line), None), line[1:]
        case _:
            assert_never(schedule.overlap)
    skips = [*decided.skipped, *([Skipped("overlap", len(left), left[0], left[-1])] if left else [])]
    if not runs and not skips and (waits, decided.next_slot) == (row.waiting_slot, row.next_slot):
        return None
    return Offer(
        row,
        decided.next_slot,
        runs=[Run(slot, run_at(schedule, row.name, slot)) for slot in runs],
        skips=skips,
        waiting_slot=waits,
        cancel_running=cancel,
        last_slot=max([*decided.fire, *(skip.last for skip in decided.skipped)], default=None),
    )


@lru_cache(maxsize=10_000)
def _schedule(rule: str) -> Schedule:
    return Schedule.from_json(json.loads(rule))


@lru_cache(maxsize=AT_ONCE)
def _due(rule: str, slot: datetime, now: datetime) -> Due:
    """Decided once for all schedules of one rule that are due together."""
    return due(_schedule(rule), slot, now)

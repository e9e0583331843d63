"""The slots of a schedule, and which of them are to be fired. Pure: every instant comes from the caller.

next(slots(schedule, after=stored_slot))        the following slot
due(schedule, stored_slot, now)                 what to fire, what to skip, and the slot to store
"""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from tasklib.schedules import zones
from tasklib.schedules.schedule import Schedule

HORIZON = timedelta(days=50 * 365)
"""A schedule without a slot for so long has none."""
PROMPT = timedelta(seconds=60)
"""With `catch_up="none"`: what is no later than this was not missed. A change of leader takes less."""

Reason = Literal["too_old", "superseded", "over_limit", "missed", "overlap", "paused", "changed"]
"""Why a slot is skipped: older than the window; a newer one is run instead; beyond the limit; nothing is caught up;
an earlier run is not finished; the schedule was paused, or was changed before a leader came to it."""

MOST_EXCLUDED = 300_000
"""So many slots in a row may be excluded. With more, a schedule has no further slot: the leader must not hang."""

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True)
class Skipped:
    """Neighbouring slots that are not run: how many, the first and the last of them, and why."""

    reason: Reason
    count: int
    first: datetime
    last: datetime


@dataclass(frozen=True)
class Due:
    """What a look at a schedule decides."""

    fire: tuple[datetime, ...]
    """The slots to run, oldest first."""
    skipped: tuple[Skipped, ...]
    next_slot: datetime | None
    """The slot to store: the first one that is not due yet. None if there is none."""


def slots(schedule: Schedule, after: datetime, *, is_brief: bool = False) -> Iterator[datetime]:
    """The slots later than an instant, in order, in UTC."""
    start = max(after, schedule.starts_at or after).astimezone(UTC)
    return slots_between(schedule, after, start + HORIZON, is_brief=is_brief)


def next_slot(schedule: Schedule, after: datetime, last_slot: datetime | None = None) -> datetime | None:
    """The slot to store for a schedule that is new, changed or resumed: later than now and than its last slot."""
    return next(slots(schedule, max(after, last_slot or after)), None)


def slots_between(
    schedule: Schedule, after: datetime, until: datetime, *, is_brief: bool = False
) -> Iterator[datetime]:
    """The slots later than one instant and not later than the other.

    `is_brief` ends them after MOST_EXCLUDED exclusions in all: for previews, which any caller may request.
    """
    start, end = _bounds(schedule, after, until)
    excluded, most = 0, MOST_EXCLUDED
    if is_brief:  # each expression costs as much again
        most //= 1 + len(schedule.excluding_expressions) // 5
    for instant in _instants(schedule, start, end):
        if schedule.exclude and _is_excluded(schedule, instant):
            excluded += 1
            if excluded == most:
                return
        else:
            excluded = excluded if is_brief else 0
            yield instant.replace(tzinfo=UTC)


def count_between(schedule: Schedule, after: datetime, until: datetime) -> int:
    """How many slots there are; without visiting each, where one rule makes them all."""
    start, end = _bounds(schedule, after, until)
    if schedule.exclude or len(schedule.expressions) > 1:
        return sum(1 for _ in slots_between(schedule, after, until))
    if schedule.expressions:
        return schedule.expressions[0].count(schedule.timezone, start, end)
    return max(_number(schedule, end) - _number(schedule, start), 0)


def due(schedule: Schedule, stored_slot: datetime, now: datetime) -> Due:
    """Decide about the stored slot and those that have come since. The next one follows from the slots alone."""
    if stored_slot > now:
        return Due((), (), stored_slot)
    oldest = max(stored_slot, now - _window(schedule))
    following = next(slots(schedule, stored_slot), None)
    if oldest == stored_slot and (following is None or following > now):
        return Due((stored_slot,), (), following)  # as nearly always: in time, and no other slot has come since
    kept = _newest(schedule, stored_slot, oldest - _TICK, now, _limit(schedule))
    skipped = (
        _skipped(schedule, "missed" if schedule.catch_up == "none" else "too_old", stored_slot, stored_slot, oldest),
        _skipped(schedule, _passed_over(schedule), stored_slot, oldest, kept[0] if kept else oldest),
    )
    return Due(kept, tuple(each for each in skipped if each), next(slots(schedule, max(now, stored_slot)), None))


def lost(schedule: Schedule, reason: Reason, stored_slot: datetime | None, now: datetime) -> Skipped | None:
    """The slots from the stored one up to now, all of which are skipped for one reason."""
    if stored_slot is None or stored_slot > now:
        return None
    return _skipped(schedule, reason, stored_slot, stored_slot, now + _TICK)


def run_at(schedule: Schedule, key: str, slot: datetime) -> datetime:
    """When the run of a slot starts: the slot, moved by the jitter that belongs to this schedule and slot."""
    jitter = schedule.max_jitter // _TICK
    if not jitter:
        return slot
    digest = hashlib.blake2b(f"{key}|{slot.astimezone(UTC).isoformat()}".encode(), digest_size=8).digest()
    return slot + timedelta(microseconds=int.from_bytes(digest, "big") % (jitter + 1))


def _window(schedule: Schedule) -> timedelta:
    return min(schedule.catch_up_window, PROMPT) if schedule.catch_up == "none" else schedule.catch_up_window


def _limit(schedule: Schedule) -> int:
    return schedule.catch_up_limit if schedule.catch_up == "all" else 1


def _passed_over(schedule: Schedule) -> Reason:
    return "over_limit" if schedule.catch_up == "all" else "superseded"


def _newest(schedule: Schedule, stored: datetime, after: datetime, until: datetime, limit: int) -> tuple[datetime, ...]:
    """The last slots of a stretch that begins no earlier than the stored slot. Visits a few times as many at most."""
    span = timedelta(minutes=1)
    while True:
        start = max(after, until - span)
        found = deque(slots_between(schedule, max(start, stored), until), maxlen=limit)
        if start < stored and len(found) < limit:
            found.appendleft(stored)  # it counts even if it is no slot any more, by a newer tzdata
        if len(found) == limit or start == after:
            return tuple(found)
        span *= 4


def _skipped(schedule: Schedule, reason: Reason, stored: datetime, first: datetime, before: datetime) -> Skipped | None:
    """The slots from one instant up to, not including, another."""
    if first >= before:
        return None
    count = count_between(schedule, max(first - _TICK, stored), before - _TICK) + (first == stored)
    if not count:
        return None
    start = stored if first == stored else next(slots(schedule, first - _TICK))
    (last,) = _newest(schedule, stored, first - _TICK, before - _TICK, 1)
    return Skipped(reason, count, start, last)


def _bounds(schedule: Schedule, after: datetime, until: datetime) -> tuple[datetime, datetime]:
    """Both ends in UTC and naive, as the rules take them, and within `starts_at` and `ends_at`."""
    if schedule.starts_at is not None:
        after = max(after, schedule.starts_at - _TICK)
        until = max(until, after)
    if schedule.ends_at is not None:
        until = min(until, schedule.ends_at)
    return after.astimezone(UTC).replace(tzinfo=None), until.astimezone(UTC).replace(tzinfo=None)


def _instants(schedule: Schedule, after: datetime, until: datetime) -> Iterator[datetime]:
    if not schedule.expressions:
        return _interval(schedule, after, until)
    each = [cron.instants(schedule.timezone, after, until) for cron in schedule.expressions]
    return each[0] if len(each) == 1 else _without_doubles(heapq.merge(*each))


def _without_doubles(instants: Iterator[datetime]) -> Iterator[datetime]:
    last = None
    for instant in instants:
        if instant != last:
            yield instant
        last = instant


def _interval(schedule: Schedule, after: datetime, until: datetime) -> Iterator[datetime]:
    step = schedule.every or timedelta.max
    slot = schedule.anchor.replace(tzinfo=None) + _number(schedule, after) * step
    while (slot := slot + step) <= until:
        yield slot


def _number(schedule: Schedule, instant: datetime) -> int:
    """How many intervals lie between the anchor and an instant, rounded down."""
    return (instant - schedule.anchor.replace(tzinfo=None)) // (schedule.every or timedelta.max)


def _is_excluded(schedule: Schedule, instant: datetime) -> bool:
    wall = instant + zones.offset(schedule.timezone, instant)
    return wall.date() in schedule.excluded_days or any(cron.shows(wall) for cron in schedule.excluding_expressions)

"""Which schedules run in the coming day, hour by hour. Pure: the time comes from the caller."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from tasklib.errors import InvalidOption
from tasklib.schedules import Schedule, count_between, slots_between, zones
from tasklib.store.schedules import ComingSchedule

DAY = timedelta(days=1)
MOST_SLOTS = 12
"""A schedule with more slots in the day is shown as a count."""
MOST_IN_HOUR = 20
_MOST_VISITED = 2000


class CalendarSlot(NamedTuple):
    """A schedule runs at a time of the zone."""

    at: datetime
    name: str


@dataclass
class Hour:
    """An hour of the zone's clock."""

    start: datetime
    slots: list[CalendarSlot] = field(default_factory=list)
    more: int = 0
    """Slots that are not listed."""


@dataclass(frozen=True, slots=True)
class Frequent:
    """A schedule that runs too often to list its slots."""

    name: str
    count: int
    is_capped: bool
    """There are more."""
    first: datetime
    last: datetime | None


@dataclass(frozen=True)
class Calendar:
    """The coming day."""

    hours: list[Hour]
    """Those in which something runs, and that are not left to `frequent`."""
    frequent: list[Frequent]


def calendar(found: Iterable[ComingSchedule], now: datetime, zone: str) -> Calendar:
    """The slots of the day that begins now. A schedule that can't be read has none."""
    hours: dict[datetime, Hour] = defaultdict(lambda: Hour(now))
    frequent = []
    for each in found:
        try:
            schedule = Schedule.from_json(each.spec)
        except InvalidOption:
            continue
        slots = list(islice(slots_between(schedule, now, now + DAY), MOST_SLOTS + 1))
        if len(slots) > MOST_SLOTS:
            frequent.append(_frequent(each.name, schedule, now, zone))
            continue
        for slot in slots:
            local = slot.astimezone(zones.load(zone))
            start = local.replace(minute=0, second=0, microsecond=0)
            # Two hours may show the same wall time when clocks go back: the instant tells them apart.
            hour = hours[start.astimezone(UTC)]
            hour.start = start
            hour.slots.append(CalendarSlot(local, each.name))
    return Calendar([_shortened(hours[key]) for key in sorted(hours)], sorted(frequent, key=lambda f: f.name))


def _frequent(name: str, schedule: Schedule, now: datetime, zone: str) -> Frequent:
    until, rules = now + DAY, zones.load(zone)
    if not schedule.exclude and len(schedule.expressions) <= 1:
        first = next(slots_between(schedule, now, until)).astimezone(rules)
        return Frequent(name, count_between(schedule, now, until), False, first, None)
    visited = list(islice(slots_between(schedule, now, until), _MOST_VISITED + 1))
    capped = len(visited) > _MOST_VISITED
    last = None if capped else visited[-1].astimezone(rules)
    return Frequent(name, min(len(visited), _MOST_VISITED), capped, visited[0].astimezone(rules), last)


def _shortened(hour: Hour) -> Hour:
    hour.slots.sort()
    hour.more = max(len(hour.slots) - MOST_IN_HOUR, 0)
    del hour.slots[MOST_IN_HOUR:]
    return hour

"""When cron expressions are due, computed the slow and obvious way, to compare with.

It walks the time in UTC, notes what the clock of the zone shows, and applies the rule to each wall minute. It shares
nothing with `tasklib.schedules` but the rules of the zones. To be quick enough for years, it walks by quarters of an
hour and keeps the walk: every offset and every change of these years is at a whole quarter, which it checks.
"""

from __future__ import annotations

import calendar
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from functools import cache

from tasklib.schedules import zones

QUARTER = timedelta(minutes=15)
EPOCH = datetime(1970, 1, 1)
_MONTHS = ("", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


def minutes(expression: str, zone: str, first: datetime, last: datetime) -> list[int]:
    """The minutes since 1970 at which the expression is due, both ends included. Instants are naive and in UTC."""
    minute, hour, *day = expression.split()
    times = sorted(h * 60 + m for h in _numbers(hour, 0, 23) for m in _numbers(minute, 0, 59))
    walk = _Walk.of(zone, first - timedelta(days=2), last + timedelta(days=2))
    found: set[int] = set()
    for today in walk.days:
        if not _day_matches(today, *day):
            continue
        if minute.startswith("*") or hour.startswith("*"):
            found.update(walk.whenever(today, times))
        else:
            found.update(walk.once(today, times))
    low, high = (first - EPOCH) // timedelta(minutes=1), (last - EPOCH) // timedelta(minutes=1)
    return sorted(each for each in found if low <= each <= high)


class _Walk:
    """What the clock of a zone showed at each quarter of an hour."""

    def __init__(self, zone: str, first: datetime, last: datetime) -> None:
        self._shown: dict[tuple[date, int], list[int]] = defaultdict(list)
        self._gap_end: dict[tuple[date, int], int] = {}
        rules, expected = zones.load(zone), None
        instant = first
        while instant < last:
            clock = instant.replace(tzinfo=UTC).astimezone(rules)
            assert clock.minute % 15 == 0
            wall = clock.replace(tzinfo=None)
            number = (instant - EPOCH) // timedelta(minutes=1)
            while expected is not None and expected < wall:  # quarters that the clock has skipped
                self._gap_end[_place(expected)] = number
                expected += QUARTER
            self._shown[_place(wall)].append(number)
            expected = wall + QUARTER
            instant += QUARTER
        self.days = [first.date() + timedelta(days=n) for n in range((last - first).days + 1)]

    @classmethod
    def of(cls, zone: str, first: datetime, last: datetime) -> _Walk:
        return _walk(zone, first, last)

    def whenever(self, day: date, times: list[int]) -> list[int]:
        """Every instant at which the clock shows one of these times."""
        return [quarter + time % 15 for time in times for quarter in self._shown.get((day, time // 15), ())]

    def once(self, day: date, times: list[int]) -> list[int]:
        """For each time the first instant at which the clock shows it, or else the end of the gap."""
        instants = []
        for time in times:
            place = day, time // 15
            if place in self._shown:
                instants.append(self._shown[place][0] + time % 15)
            elif place in self._gap_end:
                instants.append(self._gap_end[place])
        return instants


@cache
def _walk(zone: str, first: datetime, last: datetime) -> _Walk:
    return _Walk(zone, first, last)


def _place(wall: datetime) -> tuple[date, int]:
    return wall.date(), (wall.hour * 60 + wall.minute) // 15


@cache
def _day_matches(day: date, of_month: str, month: str, of_week: str) -> bool:
    if day.month not in _numbers(month, 1, 12, _MONTHS):
        return False
    by_month = any(_matches_day_of_month(day, term) for term in of_month.split(","))
    by_week = any(_matches_day_of_week(day, term) for term in of_week.split(","))
    if of_month.startswith("*") or of_week.startswith("*"):
        return by_month and by_week
    return by_month or by_week


def _matches_day_of_month(day: date, term: str) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if term == "L":
        return day.day == last
    if term == "LW":
        working = [n for n in range(1, last + 1) if day.replace(day=n).isoweekday() <= 5]
        return day.day == working[-1]
    return day.day in _numbers(term, 1, 31)


def _matches_day_of_week(day: date, term: str) -> bool:
    weekday = day.isoweekday() % 7
    if "#" in term:
        name, nth = term.split("#")
        return weekday in _numbers(name, 0, 7, _WEEKDAYS) and (day.day - 1) // 7 + 1 == int(nth)
    if term.endswith("L"):
        last = calendar.monthrange(day.year, day.month)[1]
        return weekday in _numbers(term[:-1], 0, 7, _WEEKDAYS) and day.day > last - 7
    numbers = _numbers(term, 0, 7, _WEEKDAYS)
    return weekday in numbers or (weekday == 0 and 7 in numbers)


@cache
def _numbers(field: str, low: int, high: int, names: tuple[str, ...] = ()) -> frozenset[int]:
    numbers: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        if first == "*":
            start, end = low, high
        else:
            start = names.index(first) if first in names else int(first)
            end = start if not last and not step else high if not last else 0
            if last:
                end = names.index(last) if last in names else int(last)
        numbers.update(range(start, end + 1, int(step or 1)))
    return frozenset(numbers)

"""Cron expressions: the wall times that they match, and the instants that these are in a zone.

    Cron.parse("30 2 * * MON-FRI")      minute, hour, day of month, month, day of week
    Cron.parse("*/10 * * * * *")        with the seconds in front
    Cron.parse("@daily")

`cronsim` reads the expression and applies Debian's rules for days. Times are computed here, from wall time, because
`cronsim` can go backwards from the second pass of a repeated hour, has other rules for expressions with seconds, and
loses half hours where a zone's clock changes by one.

When the clocks of a zone change:

- An expression of fixed times, without `*` at the beginning of minute and hour, is due once: at the end of the gap if
  its times lie in a gap, and in the first pass of a repeated hour.
- An expression with `*` there follows elapsed time: it is due whenever the clock shows a time that matches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from tasklib.errors import InvalidOption
from tasklib.schedules import cron_fields, zones

_DAY, _TICK = timedelta(days=1), timedelta(microseconds=1)
# Every combination of weekday, length of month and leap year is in these years.
_CALENDAR = date(2000, 1, 1), date(2028, 12, 31)


@dataclass(frozen=True)
class Cron:
    """A cron expression that has been checked."""

    text: str
    """As written, with single spaces."""

    @classmethod
    def parse(cls, text: object) -> Cron:
        """Check an expression. `InvalidOption` names the field that is wrong and says what to write."""
        if not isinstance(text, str):
            raise InvalidOption(f"cron must be a string such as '0 3 * * *', not {text!r}.")
        cron = cls(" ".join(text.split()))
        if next(_pattern(cron.text).days(*_CALENDAR), None) is None:
            raise cron_fields.never(cron.text)
        return cron

    @property
    def follows_elapsed_time(self) -> bool:
        """True if the minute or the hour begins with `*`."""
        return _pattern(self.text).follows_elapsed_time

    @property
    def description(self) -> str:
        """`At 03:00 every day`."""
        return _pattern(self.text).description

    def shows(self, wall: datetime) -> bool:
        """True if this wall time matches. An expression without seconds matches all seconds of its minutes."""
        return _pattern(self.text).shows(wall)

    def instants(self, zone: str, after: datetime, until: datetime) -> Iterator[datetime]:
        """The instants at which it is due in a zone: later than `after`, up to `until`. All are naive and in UTC."""
        pattern = _pattern(self.text)
        for span in _spans(zone, after, until, pattern.follows_elapsed_time):
            walls = pattern.walls(span.after, span.before)
            if span.gap_end is None:
                yield from (wall - span.offset for wall in walls)
            elif next(walls, None) is not None:
                yield span.gap_end

    def count(self, zone: str, after: datetime, until: datetime) -> int:
        """How many `instants` there are, without visiting each."""
        pattern, total = _pattern(self.text), 0
        for span in _spans(zone, after, until, pattern.follows_elapsed_time):
            number = pattern.count(span.after, span.before)
            total += number if span.gap_end is None else min(number, 1)
        return total


class _Span(NamedTuple):
    """Wall times strictly between two, that all lie `offset` ahead of UTC, or in a gap that ends at `gap_end`."""

    after: datetime
    before: datetime
    offset: timedelta
    gap_end: datetime | None = None


def _spans(zone: str, after: datetime, until: datetime, elapsed: bool) -> Iterator[_Span]:
    """The wall times that count between two instants, in the order of their instants."""
    shown: datetime | None = None  # how far the zone's clock has been before this piece
    for piece in zones.pieces(zone, after, until):
        start = piece.opens - _TICK
        if shown is not None and not elapsed:
            if shown < piece.opens and after < piece.start:
                # The end of the gap itself belongs to it, so that what is due there is due once.
                yield _Span(shown - _TICK, piece.opens + _TICK, piece.offset, gap_end=piece.start)
                start = piece.opens
            start = max(start, shown - _TICK)
        if piece.end > after:
            before = min(piece.closes, until + piece.offset + _TICK)
            yield _Span(max(start, after + piece.offset), before, piece.offset)
        shown = piece.closes if shown is None else max(shown, piece.closes)


class _Pattern:
    """Days, and times of day: what an expression says about wall time."""

    def __init__(self, text: str) -> None:
        self._cronsim = cron_fields.read(text)
        self.has_seconds = cron_fields.has_seconds(text)
        _, minute, hour, *_ = self._cronsim.parts
        self.follows_elapsed_time: bool = minute.startswith("*") or hour.startswith("*")
        self._months = self._cronsim.months
        self._hours = sorted(self._cronsim.hours)
        self._minutes = sorted(self._cronsim.minutes)
        self._seconds = sorted(self._cronsim.seconds)
        self._per_hour = len(self._minutes) * len(self._seconds)
        self._per_day = len(self._hours) * self._per_hour

    @property
    def description(self) -> str:
        explained = self._cronsim.explain()
        return explained if self._cronsim.day_and else f"{explained} (a day needs to match only one of the two)"

    def shows(self, wall: datetime) -> bool:
        return (
            wall.hour in self._cronsim.hours
            and wall.minute in self._cronsim.minutes
            and (not self.has_seconds or wall.second in self._cronsim.seconds)
            and wall.month in self._months
            and self._cronsim.match_day(wall.date())
        )

    def days(self, first: date, last: date) -> Iterator[date]:
        """The days that match, both ends included."""
        day = first
        while day <= last:
            if day.month not in self._months:
                day = date(day.year + day.month // 12, day.month % 12 + 1, 1)
                continue
            if self._cronsim.match_day(day):
                yield day
            day += _DAY

    def walls(self, after: datetime, before: datetime) -> Iterator[datetime]:
        """The wall times that match, strictly between the two."""
        if after >= before:
            return
        for day in self.days(after.date(), before.date()):
            first = self._rank(after, inclusive=True) if day == after.date() else 0
            last = self._rank(before, inclusive=False) if day == before.date() else self._per_day
            midnight = datetime(day.year, day.month, day.day)
            for number in range(first, last):
                yield midnight + self._time(number)

    def count(self, after: datetime, before: datetime) -> int:
        """How many `walls` there are."""
        if after >= before:
            return 0
        total = 0
        for day in self.days(after.date(), before.date()):
            total += self._rank(before, inclusive=False) if day == before.date() else self._per_day
            total -= self._rank(after, inclusive=True) if day == after.date() else 0
        return total

    def _rank(self, wall: datetime, *, inclusive: bool) -> int:
        """How many of a day's times are before this one, or with `inclusive` not after it."""
        hours = bisect_left(self._hours, wall.hour)
        rank = hours * self._per_hour
        if hours == len(self._hours) or self._hours[hours] != wall.hour:
            return rank
        minutes = bisect_left(self._minutes, wall.minute)
        rank += minutes * len(self._seconds)
        if minutes == len(self._minutes) or self._minutes[minutes] != wall.minute:
            return rank
        side = bisect_right if inclusive or wall.microsecond else bisect_left
        return rank + side(self._seconds, wall.second)

    def _time(self, rank: int) -> timedelta:
        """The time of day with this rank."""
        hour, rest = divmod(rank, self._per_hour)
        minute, second = divmod(rest, len(self._seconds))
        return timedelta(0, self._hours[hour] * 3600 + self._minutes[minute] * 60 + self._seconds[second])


@lru_cache(maxsize=4096)
def _pattern(text: str) -> _Pattern:
    return _Pattern(text)

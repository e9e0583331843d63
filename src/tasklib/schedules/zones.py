"""Time zones: their names, and the pieces of time in which their clocks run evenly.

Zones come from the `tzdata` package and not from the system, so that all processes with the same packages compute the
same slots. Instants are naive datetimes in UTC here, and walls are naive datetimes as a clock of the zone shows them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple
from zoneinfo import ZoneInfo

import tzdata

from tasklib.errors import InvalidOption

TZDATA_VERSION: str = tzdata.IANA_VERSION

_DAY, _SECOND = timedelta(days=1), timedelta(seconds=1)


class Piece(NamedTuple):
    """From `start` up to, not including, `end` a zone's clock is `offset` ahead of UTC."""

    start: datetime
    end: datetime
    offset: timedelta

    @property
    def opens(self) -> datetime:
        """The wall time at `start`."""
        return self.start + self.offset

    @property
    def closes(self) -> datetime:
        """The wall time at which the clock stops running evenly."""
        return self.end + self.offset


@cache
def names() -> frozenset[str]:
    """Every zone that the installed `tzdata` has."""
    return frozenset(resources.files(tzdata).joinpath("zones").read_text(encoding="ascii").split())


def check(name: object) -> str:
    """The name of a zone, or an error that suggests one."""
    if not isinstance(name, str):
        raise InvalidOption(f"timezone must be the name of a zone, such as 'Europe/Berlin', not {name!r}.")
    if name not in names():
        same = [known for known in names() if known.lower() == name.lower()]
        near = same or difflib.get_close_matches(name, names(), n=3, cutoff=0.6)
        hint = f"Did you mean {' or '.join(repr(n) for n in near)}?" if near else "Write an IANA name: 'Europe/Berlin'."
        raise InvalidOption(f"timezone {name[:100]!r} is not in tzdata {TZDATA_VERSION}. {hint}")
    return name


@lru_cache(maxsize=1024)
def load(name: str) -> ZoneInfo:
    """The rules of a zone."""
    with resources.files(tzdata).joinpath("zoneinfo", *check(name).split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def pieces(zone: str, instant: datetime, until: datetime) -> Iterator[Piece]:
    """The pieces of time from the one before that of `instant`, in order, up to the one of `until`.

    The one before is there because it says what the clock has already shown. A year's end also ends a piece.
    """
    previous: Piece | None = None
    for year in range(max(instant.year - 1, 1), until.year + 1):
        for piece in _year(zone, year):
            if piece.end > instant and piece.start <= until:
                if previous is not None:
                    yield previous
                    previous = None
                yield piece
            else:
                previous = piece


def offset(zone: str, instant: datetime) -> timedelta:
    """How far the zone's clock is ahead of UTC."""
    rules = load(zone)
    return rules.fromutc(instant.replace(tzinfo=rules)).utcoffset() or timedelta(0)


@lru_cache(maxsize=8192)
def _year(zone: str, year: int) -> tuple[Piece, ...]:
    start, end = datetime(year, 1, 1), datetime(year + 1, 1, 1)
    cuts = [start]
    day, current = start, offset(zone, start)
    # Two changes of a clock are weeks apart, so a look each day finds all.
    while day < end:
        following = day + _DAY
        if (changed := offset(zone, following)) != current and (cut := _change(zone, day, following, current)) < end:
            cuts.append(cut)
        day, current = following, changed
    return tuple(Piece(start, end, offset(zone, start)) for start, end in zip(cuts, [*cuts[1:], end], strict=True))


def _change(zone: str, before: datetime, after: datetime, current: timedelta) -> datetime:
    """The first second whose offset is another than the current one."""
    while after - before > _SECOND:
        middle = (before + (after - before) / 2).replace(microsecond=0)
        if offset(zone, middle) == current:
            before = middle
        else:
            after = middle
    return after

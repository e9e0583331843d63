"""Statistics: how a process counts attempts before it reports them to the database.

A `Stat` is a count under one key, with histograms of how long attempts ran and had waited. Workers count in memory and
flush every few seconds, so counting costs no statement of its own per task.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import NamedTuple, Protocol

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""The upper bounds of the histograms' buckets, in seconds; one more bucket holds longer times."""

OTHER = "(other)"
"""Stands for queues and names beyond the first `MOST_PAIRS` pairs of one process."""
MOST_PAIRS = 500
MOST_TIMED = 16
"""How many completions alike are timed of those that are stored together."""


class Key(NamedTuple):
    """The key of a counter. `level` is that of the task's own priority; `reason` details some outcomes."""

    name: str
    queue: str
    level: str
    outcome: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stat:
    """So many of a key, how long they ran and had waited in all, and how these times were distributed."""

    key: Key
    count: int
    seconds: float = 0.0
    waited: float = 0.0
    buckets: Sequence[int] = ()
    """How many ran up to each of `BOUNDS`, and longer. Empty where nothing ran."""
    waits: Sequence[int] = ()
    """The same of the time from being due to being started."""


class CountedTask(Protocol):
    """The fields of a leased row that are counted."""

    @property
    def name(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def effective_priority(self) -> int: ...
    @property
    def due(self) -> str: ...


class Attempted(Protocol):
    """The fields of an attempt that are counted."""

    @property
    def claimed(self) -> CountedTask: ...
    @property
    def started_at(self) -> float: ...


_kind = attrgetter("name", "queue", "priority")


class _Sums:
    __slots__ = ("buckets", "count", "seconds", "waited", "waits")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = self.waited = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.waits = [0] * (len(BOUNDS) + 1)

    @classmethod
    def of(cls, stat: Stat) -> _Sums:
        sums = cls()
        sums.count, sums.seconds, sums.waited = stat.count, stat.seconds, stat.waited
        sums.buckets, sums.waits = list(stat.buckets) or sums.buckets, list(stat.waits) or sums.waits
        return sums

    def add(self, other: _Sums) -> None:
        self.count += other.count
        self.seconds += other.seconds
        self.waited += other.waited
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        self.waits = [a + b for a, b in zip(self.waits, other.waits, strict=True)]

    def stat(self, key: Key) -> Stat:
        buckets = self.buckets if any(self.buckets) else ()
        waits = self.waits if any(self.waits) else ()
        return Stat(key, self.count, self.seconds, self.waited, buckets, waits)


class StatsCollector:
    """Counts the attempts of a process. `take()` returns the counts since the last call."""

    def __init__(self) -> None:
        self.clock_offset: float | None = None
        """The database's clock (seconds since 1970) less our monotonic one. Until it is known no waiting is counted."""
        self._new: dict[Key, _Sums] = {}
        self._all: dict[Key, _Sums] = {}
        self._pairs: set[tuple[str, str]] = set()

    def count(self, outcome: str, number: int = 1, *, reason: str = "") -> None:
        """Count something that belongs to no task function."""
        self._of(Key("", "", "", outcome, reason)).count += number

    def claimed(self, rows: Sequence[CountedTask]) -> None:
        """One claim brought these; those that waiting has raised to another level are promoted."""
        self.count("claim")
        self.count("claimed", len(rows))
        for row in rows:
            if row.effective_priority != row.priority:
                was, now = level_of(row.priority), level_of(row.effective_priority)
                if was != now:
                    self._of(Key(row.name, row.queue, was, "promoted", now)).count += 1

    def settled(self, number: int) -> None:
        """One flush of the settler stored so many outcomes."""
        self.count("settle")
        self.count("settled", number)

    def ended(self, row: CountedTask, outcome: str, reason: str = "", ran: tuple[float, float] | None = None) -> None:
        """An attempt is over. `ran`: when its function was started, and now (monotonic); None if that says nothing."""
        sums = self._of(Key(row.name, row.queue, level_of(row.priority), outcome, reason))
        sums.count += 1
        if ran is not None:
            self._add_times(sums, row.due, *ran)

    def completed(self, attempts: Sequence[Attempted], now: float) -> None:
        """Many attempts have completed. The one place that is called for every task.

        Each is counted; of many alike some are timed, and stand for their neighbours.
        """
        for (name, queue, priority), some in _alike(attempts):
            sums = self._of(Key(name, queue, level_of(priority), "completed"))
            sums.count += len(some)
            step = -(-len(some) // MOST_TIMED)
            for place in range(0, len(some), step):
                attempt = some[place]
                self._add_times(sums, attempt.claimed.due, attempt.started_at, now, min(step, len(some) - place))

    def take(self) -> list[Stat]:
        """The counts since the last call."""
        new, self._new = self._new, {}
        merged: dict[Key, _Sums] = {}
        for key, sums in new.items():
            known = self._known(key)
            merged.setdefault(known, _Sums()).add(sums)
            self._all.setdefault(known, _Sums()).add(sums)
        return [sums.stat(key) for key, sums in merged.items()]

    def totals(self) -> list[Stat]:
        """All counts of this process that were taken so far. May be called from any thread."""
        return [sums.stat(key) for key, sums in list(self._all.items())]

    def _of(self, key: Key) -> _Sums:
        sums = self._new.get(key)
        if sums is None:
            sums = self._new[key] = _Sums()
        return sums

    def _add_times(self, sums: _Sums, due: str, started_at: float, now: float, times: int = 1) -> None:
        seconds = now - started_at
        sums.seconds += seconds * times
        sums.buckets[bisect_left(BOUNDS, seconds)] += times
        if self.clock_offset is not None:
            waited = max(0.0, started_at + self.clock_offset - _since_1970(due))
            sums.waited += waited * times
            sums.waits[bisect_left(BOUNDS, waited)] += times

    def _known(self, key: Key) -> Key:
        """The key itself, or one that stands for many once a process has seen too many pairs of name and queue."""
        pair = (key.name, key.queue)
        if pair in self._pairs or not key.name:
            return key
        if len(self._pairs) < MOST_PAIRS:
            self._pairs.add(pair)
            return key
        return key._replace(name=OTHER, queue=OTHER)


def summed(stats: Iterable[Stat]) -> list[Stat]:
    """The counts of several collectors, those of one key added."""
    together: dict[Key, _Sums] = {}
    for stat in stats:
        sums = together.setdefault(stat.key, _Sums())
        sums.add(_Sums.of(stat))
    return [sums.stat(key) for key, sums in together.items()]


def _alike(attempts: Sequence[Attempted]) -> Iterable[tuple[tuple[str, str, int], Sequence[Attempted]]]:
    """Those of one name, queue and priority together, which they usually are all."""
    kinds = list(map(_kind, [attempt.claimed for attempt in attempts]))
    if not kinds or kinds.count(kinds[0]) == len(kinds):
        return [(kinds[0], attempts)] if kinds else []
    alike: dict[tuple[str, str, int], list[Attempted]] = {}
    for kind, attempt in zip(kinds, attempts, strict=True):
        alike.setdefault(kind, []).append(attempt)
    return alike.items()


def level_of(priority: int) -> str:
    """The level a priority belongs to: high is 100, low is below 0."""
    return "high" if priority >= 100 else "medium" if priority >= 0 else "low"


def together(stats: Iterable[Stat], key: Key) -> Stat:
    """The sum of several, under one key."""
    sums = _Sums()
    for stat in stats:
        part = _Sums()
        part.count, part.seconds, part.waited = stat.count, stat.seconds, stat.waited
        part.buckets = list(stat.buckets) or part.buckets
        part.waits = list(stat.waits) or part.waits
        sums.add(part)
    return sums.stat(key)


def percentile(buckets: Sequence[int], share: float) -> float | None:
    """Where about `share` of a histogram lies, in seconds, by even spread within a bucket; None if it is empty.

    What is longer than the last bound counts as just that long.
    """
    wanted, seen, lower = share * sum(buckets), 0, 0.0
    if not wanted:
        return None
    for count, upper in zip(buckets, BOUNDS, strict=False):
        if seen + count >= wanted:
            return lower + (upper - lower) * (wanted - seen) / count
        seen, lower = seen + count, upper
    return BOUNDS[-1]


def _since_1970(due: str) -> float:
    try:
        return datetime.fromisoformat(due).timestamp()
    except ValueError:  # beyond what Python's calendar holds; such a task hasn't waited
        return float("inf")

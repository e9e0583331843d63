"""Stats: what happened, counted. Reading them costs the same whatever the table of tasks holds.

    db.run(stats.totals())                                 # since ever, by level, outcome and reason
    db.run(stats.series(minutes=60, step_seconds=60))      # for charts
    db.run(stats.by_name(minutes=60))

Outcomes of tasks: completed, failed (a retry is scheduled), dead_letter, cancelled, released, stale (a result that was
refused), promoted (`level` is where from, `reason` where to), replayed (`reason` is what it was), submitted (counted by
the leader). Of the fleet, with no name: claim, claimed, settle, settled (statements, and tasks in them),
heartbeat_failed, worker_died, duty_failed (the duty is its reason), arrivals_counted (its seconds are those in which
submissions were counted).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from tasklib.db.fast_path import array, plain_array
from tasklib.db.query import Query, Rows, nothing
from tasklib.stats import BOUNDS, MOST_PAIRS, OTHER, Key, Stat, percentile, together
from tasklib.store.fleet import Term

MOST_STEPS = 1500
KEPT = ((60, 3 * 3600.0, 600), (600, 48 * 3600.0, 3600), (3600, 31 * 86400.0, None))
"""Each span in seconds, how long it is kept, and the span it then becomes part of."""
MOST_WORKERS = 200
"""So many workers are told apart in what is folded at a time; the others count as `OTHER`."""
ARRIVALS_GRACE_SECONDS = 20.0
"""How long after its end a minute's submissions are counted: transactions that are open longer are missed."""
MOST_ARRIVALS = 50_000
"""Of a minute with more submissions so many are read; they stand for the rest."""


@dataclass(frozen=True)
class Point:
    """What happened in one step of time, or under one name, queue or worker."""

    stats: Sequence[Stat]
    start: datetime | None = None
    label: str = ""
    _by_outcome: Mapping[str, Stat] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        outcomes = sorted({t.key.outcome for t in self.stats})
        found = {o: together([t for t in self.stats if t.key.outcome == o], Key("", "", "", o)) for o in outcomes}
        object.__setattr__(self, "_by_outcome", found)

    def of(self, outcome: str) -> int:
        """How many had this outcome."""
        return self._by_outcome[outcome].count if outcome in self._by_outcome else 0

    def only(self, outcome: str) -> Point:
        """The same of one outcome."""
        return Point([t for t in self.stats if t.key.outcome == outcome], self.start, self.label)

    @property
    def attempts(self) -> int:
        """Attempts that ended by themselves: completed, to be retried, or given up."""
        return self.of("completed") + self.failures

    @property
    def failures(self) -> int:
        return self.of("failed") + self.of("dead_letter")

    @property
    def finished(self) -> int:
        """Tasks that are over: completed, given up, or cancelled."""
        return self.of("completed") + self.of("dead_letter") + self.of("cancelled")

    def counted_seconds(self) -> float:
        """In how many seconds of this step submissions were counted."""
        return self._by_outcome["arrivals_counted"].seconds if "arrivals_counted" in self._by_outcome else 0.0

    def duration(self, share: float) -> float | None:
        """How long attempts ran: `duration(0.95)` seconds or less for 95% of them, about. None if there were none."""
        return percentile(self._ran.buckets, share)

    def wait(self, share: float) -> float | None:
        """The same for the time from being due to being started."""
        return percentile(self._ran.waits, share)

    @property
    def mean_seconds(self) -> float | None:
        """How long an attempt ran in the mean."""
        ran = self._ran
        return ran.seconds / sum(ran.buckets) if ran.buckets else None

    @property
    def _ran(self) -> Stat:
        ended = [t for o, t in self._by_outcome.items() if o in ("completed", "failed", "dead_letter")]
        return together(ended, Key("", "", "", "ended"))


def add(stats: Sequence[Stat], *, worker: str | None = None, number: int = 0) -> Query[float]:
    """Add what a process has counted; reads the database's clock, in seconds since 1970.

    A worker gives its id and a number that grows: then the same number counts once, however often it is sent.
    """
    keys = [t.key for t in stats]
    parameters: dict[str, Any] = {
        "worker": worker,
        "number": number,
        "names": array([k.name for k in keys]),
        "queues": array([k.queue for k in keys]),
        "levels": array([k.level for k in keys]),
        "outcomes": array([k.outcome for k in keys]),
        "reasons": array([k.reason for k in keys]),
        "counts": plain_array([t.count for t in stats]),
        "seconds": plain_array([t.seconds for t in stats]),
        "waited": plain_array([t.waited for t in stats]),
        "buckets": array([plain_array(t.buckets) for t in stats]),
        "waits": array([plain_array(t.waits) for t in stats]),
    }
    return Query("stats_add", parameters, lambda rows: float(rows[0][0]))


def reported(worker: str, ended: Sequence[tuple[str, str, str]]) -> Query[None]:
    """Count results reported by a worker over HTTP: (id, outcome, reason) of each. Their times come from the rows."""
    parameters = {
        "worker": worker,
        "ids": plain_array([id_ for id_, _, _ in ended]),
        "outcomes": array([outcome for _, outcome, _ in ended]),
        "reasons": array([reason for _, _, reason in ended]),
        "bounds": plain_array(BOUNDS),
    }
    return Query("stats_reported", parameters, nothing, all_text=True)


def totals() -> Query[list[Stat]]:
    """All that was ever counted, by level, outcome and reason. These never go down."""
    return Query("stats_totals", {}, lambda rows: [_tally(row) for row in rows], repeatable=True)


def series(
    minutes: int,
    step_seconds: int,
    *,
    name: str | None = None,
    queue: str | None = None,
    worker: str | None = None,
    ago: float = 0.0,
) -> Query[list[Point]]:
    """What happened in each step of the last minutes, the oldest first, with steps in which nothing did.

    `ago` seconds earlier is the period before. Data older than 3 hours is kept by 10 minutes, data older than 2 days by
    the hour, for 31 days; of single workers for 2 days.
    """
    check_steps("series", minutes, step_seconds)
    window = _window(minutes, step_seconds, name, queue, worker, ago)
    return Query("stats_series", window, _points, repeatable=True)


def series_by(
    what: str,
    minutes: int,
    step_seconds: int,
    *,
    name: str | None = None,
    queue: str | None = None,
    ago: float = 0.0,
    limit: int = 8,
) -> Query[list[tuple[datetime, list[Point]]]]:
    """The same by `what`: name, queue or worker. The busiest ones in each step, and the others under the label ''."""
    check_steps("series_by", minutes, step_seconds)
    window = _window(minutes, step_seconds, name, queue, None, ago)
    parameters = {**window, "of_workers": what == "worker", "by": what, "limit": limit}
    return Query("stats_series_by", parameters, _labelled_points, repeatable=True)


def by_name(minutes: int, *, queue: str | None = None, limit: int = 100) -> Query[list[Point]]:
    """What happened in the last minutes by name of the task function (`label`), the busiest first."""
    return _by("name", minutes, None, queue, limit)


def by_queue(minutes: int, *, name: str | None = None, limit: int = 100) -> Query[list[Point]]:
    """The same by queue."""
    return _by("queue", minutes, name, None, limit)


def by_worker(minutes: int, *, limit: int = 200) -> Query[list[Point]]:
    """The same by the worker that ran the attempts."""
    return _by("worker", minutes, None, None, limit)


def fold(term: Term, limit: int) -> Query[int]:
    """Move deltas into the minutes and the total; reads how many there were."""
    parameters = {**term.parameters(), "limit": limit, "most_workers": MOST_WORKERS, "other": OTHER}
    return Query("stats_fold", parameters, lambda rows: int(rows[0][0]))


def count_arrivals(term: Term, *, most_minutes: int = 2) -> Query[None]:
    """Count what was submitted in the last minutes that are over and not counted yet, up to ten minutes back."""
    parameters = {
        **term.parameters(),
        "grace": ARRIVALS_GRACE_SECONDS,
        "most": MOST_ARRIVALS,
        "most_minutes": most_minutes,
        "most_pairs": MOST_PAIRS,
        "other": OTHER,
    }
    return Query("count_arrivals", parameters, nothing)


def coarsen(term: Term, span: int, age: float, into: int | None) -> Query[None]:
    """Make spans older than `age` part of longer ones; None forgets them."""
    return Query("stats_coarsen", {**term.parameters(), "span": span, "age": age, "into": into}, nothing)


def _by(what: str, minutes: int, name: str | None, queue: str | None, limit: int) -> Query[list[Point]]:
    window = _window(minutes, 60, name, queue, None, 0.0)
    parameters = {**window, "of_workers": what == "worker", "by": what, "limit": limit}
    return Query("stats_by", parameters, _labelled, repeatable=True)


def check_steps(call: str, minutes: int, step_seconds: int) -> None:
    """Refuse a series with more steps than a chart can show."""
    if step_seconds < 1 or minutes < 1 or minutes * 60 / step_seconds > MOST_STEPS:
        raise ValueError(f"{call}() gives 1 to {MOST_STEPS} steps, not {minutes} min by {step_seconds} s.")


def _window(
    minutes: int, step: int, name: str | None, queue: str | None, worker: str | None, ago: float
) -> dict[str, Any]:
    return {
        "seconds": minutes * 60.0,
        "step": step,
        "ago": float(ago),
        "name": name,
        "queue": queue,
        "worker": worker,
        "of_workers": worker is not None,
    }


def _tally(row: Sequence[Any]) -> Stat:
    level, outcome, reason, count, seconds, waited, buckets, waits = row
    return Stat(Key("", "", level, outcome, reason), count, seconds, waited, buckets, waits)


def _points(rows: Rows) -> list[Point]:
    """Rows of (moment, step, level, outcome, reason, ...); a moment in which nothing happened has one of nulls."""
    return [
        Point([_tally(row[2:]) for row in some if row[1] is not None], start=moment)
        for moment, some in groupby(rows, key=itemgetter(0))
    ]


def _labelled_points(rows: Rows) -> list[tuple[datetime, list[Point]]]:
    """Rows of (moment, label, outcome, ...); a moment in which nothing happened has one of nulls."""
    return [
        (moment, _labelled([row[1:] for row in some if row[1] is not None]))
        for moment, some in groupby(rows, key=itemgetter(0))
    ]


def _labelled(rows: Rows) -> list[Point]:
    """Rows of (label, outcome, ...)."""
    return [Point(list(_outcomes(some)), label=label) for label, some in groupby(rows, key=itemgetter(0))]


def _outcomes(rows: Iterable[tuple[Any, ...]]) -> Iterable[Stat]:
    for _, outcome, *rest in rows:
        yield _tally(["", outcome, "", *rest])

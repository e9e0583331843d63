"""What can be charted: a measure, over a period, of all or of one queue, name or worker, grouped or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from tasklib.client.search_terms import quoted
from tasklib.db.query import Query
from tasklib.server.dashboard.charts import ChartData, Values
from tasklib.store import levels, stats
from tasklib.store.levels import Depth
from tasklib.store.stats import Point

PERIODS = {
    "15m": (15, 60),
    "1h": (60, 60),
    "6h": (360, 600),
    "24h": (1440, 1800),
    "7d": (7 * 1440, 2 * 3600),
    "30d": (30 * 1440, 6 * 3600),
}
"""Minutes shown, and seconds of a step. After 3 hours data is kept by ten minutes, after 2 days by the hour."""
MEASURES = {
    "arrivals": "Submitted and finished",
    "outcomes": "Attempts by outcome",
    "failures": "Failed attempts",
    "run": "Run time",
    "wait": "Wait before start",
    "waiting": "Waiting tasks",
    "oldest": "Oldest waiting task",
}
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
OUTCOMES = {"completed": "Completed", "failed": "Failed", "dead_letter": "Dead letter"}
"""Failed: a retry follows."""
FAILURES = {"failed": "Failed", "dead_letter": "Dead letter"}
LEVELS = {"high": "High", "medium": "Medium", "low": "Low"}
GROUPS = {"": "Nothing", "outcome": "Outcome", "queue": "Queue", "name": "Task name", "worker": "Worker"}
_GROUPED = {"outcomes": "outcome", "failures": "outcome", "run": "", "wait": "", "waiting": "", "oldest": ""}
"""The measures that can be grouped, and how they are if it isn't said."""
MOST_GROUPS = 8
_KEPT_DAYS, _KEPT_DAYS_OF_WORKERS, _KEPT_DAYS_OF_DEPTHS = 31, 2, 8

Runs = Callable[[Query[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is charted: all tasks, or those of a queue, a name, or a worker."""

    queue: str | None = None
    name: str | None = None
    worker: str | None = None

    def terms(self) -> list[str]:
        """The same as terms of a search."""
        found = (("queue", self.queue), ("name", self.name), ("worker", self.worker))
        return [f"{key}:{quoted(value)}" for key, value in found if value]


@dataclass(frozen=True, slots=True)
class ChartQuery:
    """One chart."""

    of: str = "outcomes"
    period: str = "1h"
    by: str = ""
    share: str = "p95"
    compare: bool = False
    subject: Subject = Subject()

    def known(self) -> ChartQuery:
        """The same with what can be charted in place of what can't."""
        of = self.of if self.of in MEASURES else "outcomes"
        by = self.by if self.by in GROUPS and of in _GROUPED else ""
        if by and (self.subject.worker or getattr(self.subject, by, None)):
            by = ""  # one group is no grouping, and attempts of a worker are counted by outcome alone
        if of in ("waiting", "oldest") and (by != "queue" or self.subject.name):
            by = ""  # the leader counts what waits of a queue, or of a name
        subject = self.subject
        if subject.worker or by == "worker":
            subject = Subject(worker=subject.worker)
        period = self.period if self.period in PERIODS else "1h"
        share = self.share if self.share in SHARES else "p95"
        return replace(self, of=of, by=by, period=period, share=share, subject=subject)

    @property
    def minutes(self) -> int:
        return PERIODS[self.period][0]

    @property
    def step(self) -> int:
        return PERIODS[self.period][1]

    def kept(self, days: int) -> bool:
        """Whether the period before is kept, too."""
        return 2 * self.minutes <= days * 1440

    def address(self) -> str:
        """The page of this chart."""
        given = {"of": self.of, "period": self.period, "by": self.by, "share": self.share}
        subject = {"queue": self.subject.queue, "name": self.subject.name, "worker": self.subject.worker}
        wanted = {key: value for key, value in {**given, **subject}.items() if value}
        return "/charts?" + urlencode({**wanted, "compare": "1" if self.compare else "0"})


async def load(run: Runs, query: ChartQuery) -> ChartData:
    """The data of one chart."""
    days = _KEPT_DAYS_OF_WORKERS if query.subject.worker or query.by == "worker" else _KEPT_DAYS
    if query.of in ("waiting", "oldest"):
        return of_depths(query, *await depths(run, query))
    if query.by in ("queue", "name", "worker"):
        steps = await run(_grouped(query))
        is_before = query.compare and query.kept(days)
        before = [p for _, p in await run(_grouped(query, query.minutes * 60))] if is_before else []
        return of_groups(query, steps, [Point([t for p in some for t in p.stats]) for some in before])
    return of_points(query, *await points(run, query))


async def points(run: Runs, query: ChartQuery) -> tuple[list[Point], list[Point]]:
    """What happened in each step, and in the period before if that is compared and kept."""
    days = _KEPT_DAYS_OF_WORKERS if query.subject.worker else _KEPT_DAYS
    now = await run(_series(query))
    return now, await run(_series(query, query.minutes * 60)) if query.compare and query.kept(days) else []


async def depths(run: Runs, query: ChartQuery) -> tuple[list[Depth], list[Depth]]:
    """How deep it was at the end of each step, and in the period before."""
    now = await run(_depths(query))
    is_before = query.compare and query.by != "queue" and query.kept(_KEPT_DAYS_OF_DEPTHS)
    return now, await run(_depths(query, query.minutes * 60)) if is_before else []


def of_points(query: ChartQuery, now: Sequence[Point], before: Sequence[Point]) -> ChartData:
    """The chart of a measure, from the same points for each."""
    match query.of:
        case "arrivals":
            data = _chart(query, {"submitted": "Submitted", "finished": "Finished"}, now, lambda p: _arrivals(query, p))
            if data.steps:  # the last step isn't over: its few tasks are no fall
                data = replace(data, steps=[*data.steps[:-1], (data.steps[-1][0], {})])
            return replace(
                data,
                before=[_arrivals(query, p)["finished"] for p in before],
                before_title="Finished before",
                note=f"{_each(query)}, counted when it is over",
            )
        case "run" | "wait" if query.by != "outcome":
            shares = dict(zip(SHARES, SHARES, strict=True))
            data = _chart(query, shares, now, lambda p: {key: _time(query, p, s) for key, s in SHARES.items()})
            earlier = [_time(query, p, SHARES[query.share]) for p in before]
            return replace(data, before=earlier, before_title=f"{query.share} before")
        case "run" | "wait":
            share = SHARES[query.share]
            data = _chart(
                query, OUTCOMES, now, lambda p: {key: _time(query, p.only(key), share) for key in OUTCOMES}, query.share
            )
            return replace(data, before=[_time(query, p, share) for p in before], before_title="All before")
        case _:
            series = FAILURES if query.of == "failures" else OUTCOMES
            data = _chart(query, series, now, lambda p: {key: float(p.of(key)) for key in series})
            return replace(
                data, before=[float(sum(p.of(key) for key in series)) for p in before], before_title="Before"
            )


def of_groups(query: ChartQuery, steps: Sequence[tuple[datetime, list[Point]]], before: Sequence[Point]) -> ChartData:
    """The same by queue, name or worker: the busiest, and the others together."""
    counts: dict[str, int] = {}
    for _, some in steps:
        for p in some:
            counts[p.label] = counts.get(p.label, 0) + p.attempts
    labels = sorted((label for label in counts if label), key=lambda label: (-counts[label], label))
    keys = {label: f"g{n}" for n, label in enumerate(labels[:MOST_GROUPS])}
    is_rest = "" in counts
    series = {key: label for label, key in keys.items()} | ({"rest": "all others"} if is_rest else {})

    def value(p: Point) -> float | None:
        if query.of in ("run", "wait"):
            return _time(query, p, SHARES[query.share])
        return float(p.failures if query.of == "failures" else p.attempts)

    valued = [(at, {keys.get(p.label, "rest"): value(p) for p in some}) for at, some in steps]
    is_time = query.of in ("run", "wait")
    note = query.share if is_time else _each(query)
    return ChartData(
        _title(query), query.of, not is_time, is_time, series, valued, query.step,
        [value(p) for p in before], "All before", note, _search(query, {key: label for label, key in keys.items()}),
    )  # fmt: skip


def of_depths(query: ChartQuery, now: Sequence[Depth], before: Sequence[Depth]) -> ChartData:
    """How much waits, by level; or how long the oldest has waited. Either of them by queue."""
    keys: dict[str, str] = {}
    if query.by == "queue":
        keys = _deepest(query, now)
        series = {key: queue for queue, key in keys.items()}
        if any(queue not in keys for d in now for queue in d.by_level):
            series["rest"] = "all others"
        values = [(d.moment, _by_queue(query, d, keys)) for d in now]
        earlier = []
    elif query.of == "oldest":
        series, values = {"oldest": "Oldest"}, [(d.moment, {"oldest": d.oldest}) for d in now]
        earlier = [d.oldest for d in before]
    else:
        series = LEVELS
        values = [(d.moment, {k: float(n) for k, n in d.by_level.items()} if d.is_known else {}) for d in now]
        earlier = [None if d.depth is None else float(d.depth) for d in before]
    capped = "; at least so many where the leader stopped counting" if any(d.is_capped for d in now) else ""
    is_time = query.of == "oldest"
    note = f"counted by the leader{capped}"
    return ChartData(
        _title(query),
        query.of,
        not is_time,
        is_time,
        series,
        values,
        query.step,
        earlier,
        "Before",
        note,
        _search(query, {key: queue for queue, key in keys.items()}),
    )


def _deepest(query: ChartQuery, now: Sequence[Depth]) -> dict[str, str]:
    """The queues with most in them, or with the oldest task, and the keys of their series."""
    most: dict[str, float] = {}
    for depth in now:
        for queue, value in _figures(query, depth).items():
            most[queue] = max(value, most.get(queue, 0.0))
    first = sorted(most, key=lambda queue: (-most[queue], queue))[:MOST_GROUPS]
    return {queue: f"g{n}" for n, queue in enumerate(first)}


def _figures(query: ChartQuery, depth: Depth) -> Mapping[str, float]:
    return depth.oldest_age_seconds if query.of == "oldest" else depth.by_level


def _by_queue(query: ChartQuery, depth: Depth, keys: Mapping[str, str]) -> Values:
    """A queue in which nothing waited has a zero; a step in which the leader didn't count has nothing."""
    if not depth.is_known:
        return {}
    found: dict[str, float | None] = dict.fromkeys(keys.values(), 0.0)
    for queue, value in _figures(query, depth).items():
        key = keys.get(queue, "rest")
        known = found.get(key) or 0.0
        found[key] = max(known, value) if query.of == "oldest" else known + value
    return found


def _chart(
    query: ChartQuery,
    series: Mapping[str, str],
    now: Sequence[Point],
    values: Callable[[Point], Values],
    note: str = "",
) -> ChartData:
    is_time, is_bars = query.of in ("run", "wait"), query.of in ("outcomes", "failures")
    steps = [(p.start, values(p)) for p in now if p.start is not None]
    note = note or ("" if is_time else _each(query))
    return ChartData(_title(query), query.of, is_bars, is_time, series, steps, query.step, (), "", note, _search(query))


def _arrivals(query: ChartQuery, point: Point) -> dict[str, float | None]:
    """What came in and what was finished; a step whose submissions were not all counted is unknown."""
    known = point.counted_seconds() >= 0.9 * query.step
    return {"submitted": float(point.of("submitted")) if known else None, "finished": float(point.finished)}


def _time(query: ChartQuery, point: Point, share: float) -> float | None:
    return point.duration(share) if query.of == "run" else point.wait(share)


def _title(query: ChartQuery) -> str:
    if query.of == "outcomes" and query.by in ("queue", "name", "worker"):
        return f"Attempts by {GROUPS[query.by].lower()}"
    by = f" by {GROUPS[query.by].lower()}" if query.by else ""
    return MEASURES[query.of] + by


def _each(query: ChartQuery) -> str:
    minutes = query.step // 60
    if minutes == 1:
        return "per minute"
    return f"per {minutes} min" if minutes < 120 else f"per {minutes // 60} h"


def _search(
    query: ChartQuery, groups: Mapping[str, str] | None = None
) -> Callable[[str | None, datetime, datetime], str]:
    by = query.by if query.by in ("queue", "name", "worker") else ""

    def address(series: str | None, start: datetime, end: datetime) -> str:
        terms = query.subject.terms()
        if by and series and groups and series in groups:
            terms.append(f"{by}:{quoted(groups[series])}")
        when = "failed" if query.of == "failures" else "created"
        if series == "dead_letter" or (series == "failed" and query.of == "failures"):
            terms.append(f"state:{series}")
        return "/tasks?" + urlencode({"q": " ".join([*terms, f"{when}:{_iso(start)}..{_iso(end)}"])})

    return address


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")


def _series(query: ChartQuery, ago: float = 0.0) -> Query[list[Point]]:
    s = query.subject
    return stats.series(query.minutes, query.step, name=s.name, queue=s.queue, worker=s.worker, ago=ago)


def _grouped(query: ChartQuery, ago: float = 0.0) -> Query[list[tuple[datetime, list[Point]]]]:
    s = query.subject
    return stats.series_by(query.by, query.minutes, query.step, name=s.name, queue=s.queue, ago=ago, limit=MOST_GROUPS)


def _depths(query: ChartQuery, ago: float = 0.0) -> Query[list[Depth]]:
    s = query.subject
    return levels.depth_series(
        query.minutes, query.step, queue=s.queue, name=s.name, ago=ago, by_queue=query.by == "queue"
    )

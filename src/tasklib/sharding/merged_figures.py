"""The answers of several shards about the fleet, limits and charts, as one: figures are summed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from tasklib.db.query import Query
from tasklib.sharding.merges import Answers, grouped, lists
from tasklib.stats import Stat, together
from tasklib.store.backlog import Backlog
from tasklib.store.behind import Look
from tasklib.store.breakers import BreakerInfo
from tasklib.store.dashboard import NameBacklog
from tasklib.store.fleet import Deploy, WorkerInfo
from tasklib.store.levels import Depth, FleetFigures, QueueLevel, StateCount
from tasklib.store.limits import LimitInfo, LimitKey, ShareInfo
from tasklib.store.pauses import Paused
from tasklib.store.stats import Point
from tasklib.store.stored_payloads import KeyCount
from tasklib.store.top import Running


def backlog(query: Query[Any], answers: Answers) -> list[Backlog]:
    return grouped(lists(query, answers), lambda b: (b.queue, b.level), _deeper)


def backlog_by_name(query: Query[Any], answers: Answers) -> list[NameBacklog]:
    return grouped(lists(query, answers), lambda b: (b.name, b.level), _deeper)


def _deeper(one: Any, other: Any) -> Any:
    return replace(
        one,
        depth=one.depth + other.depth,
        is_capped=one.is_capped or other.is_capped,
        oldest_age_seconds=max(one.oldest_age_seconds, other.oldest_age_seconds),
    )


def levels(query: Query[Any], answers: Answers) -> list[QueueLevel]:
    """Waits of half and 95% of the tasks are those of the shard where they are longest."""

    def both(one: QueueLevel, other: QueueLevel) -> QueueLevel:
        deeper: QueueLevel = _deeper(one, other)
        return replace(
            deeper,
            is_estimated=one.is_estimated or other.is_estimated,
            is_partial=one.is_partial or other.is_partial,
            p50=_longest(one.p50, other.p50),
            p95=_longest(one.p95, other.p95),
            p99=_longest(one.p99, other.p99),
        )

    return grouped(lists(query, answers), lambda level: (level.queue, level.level), both)


def _longest(*seconds: float | None) -> float | None:
    return max((s for s in seconds if s is not None), default=None)


def depths(query: Query[Any], answers: Answers) -> list[Depth]:
    def both(one: Depth, other: Depth) -> Depth:
        keys = {*one.by_level, *other.by_level}
        ages = {*one.oldest_age_seconds, *other.oldest_age_seconds}
        return Depth(
            one.moment,
            {key: one.by_level.get(key, 0) + other.by_level.get(key, 0) for key in keys},
            {key: max(one.oldest_age_seconds.get(key, 0.0), other.oldest_age_seconds.get(key, 0.0)) for key in ages},
            one.is_capped or other.is_capped,
            one.is_known or other.is_known,
        )

    return sorted(grouped(lists(query, answers), lambda d: d.moment, both), key=lambda d: d.moment)


def state_counts(query: Query[Any], answers: Answers) -> list[StateCount]:
    def both(one: StateCount, other: StateCount) -> StateCount:
        unknown = one.count is None or other.count is None
        count = None if one.count is None or other.count is None else one.count + other.count
        return StateCount(one.state, count, unknown or one.is_estimated or other.is_estimated)

    return grouped(lists(query, answers), lambda c: c.state, both)


_STATUSES = ("active", "draining", "dead")


def with_each_worker(query: Query[Any], _: str | None) -> Query[Any]:
    """The question for `fleet_figures` of several shards: the workers of two are not known by their numbers."""
    return replace(query, parameters={**query.parameters, "each": True})


def fleet_figures(_: Query[Any], answers: Answers) -> FleetFigures:
    """A worker of several shards is counted once, with all that it holds; it is alive if it is so for one of them."""
    all_ = list(answers.values())
    found: dict[str, tuple[str, int, int]] = {}
    for id_, (status, slots, taken) in (item for figures in all_ for item in figures.each.items()):
        before, most, held = found.get(id_, (status, slots, 0))
        found[id_] = min(before, status, key=_STATUSES.index), max(most, slots), held + taken
    workers: dict[str, tuple[int, int, int]] = {}
    for status, slots, taken in sorted(found.values()):
        count, capacity, load = workers.get(status, (0, 0, 0))
        workers[status] = count + 1, capacity + slots, load + taken
    ages = [f.snapshot_age_seconds for f in all_]
    return FleetFigures(
        workers,
        all_[0].term,
        all(f.has_leader for f in all_),
        None if None in ages else max(ages),
        sum(f.dead_tuples for f in all_),
        max(f.oldest_xmin_age for f in all_),
        max(f.oldest_transaction_seconds for f in all_),
        max(f.schedule_late_seconds for f in all_),
        sum(f.schedules_paused for f in all_),
        sum(f.schedules_failing for f in all_),
    )


def looks(_: Query[Any], answers: Answers) -> dict[str, list[Look]]:
    """At each moment at which some shard's leader counted: the longest wait on any shard by its last count."""
    found: dict[str, list[Look]] = {}
    for value in {value for answer in answers.values() for value in answer}:
        latest: dict[int, float] = {}
        seen = sorted((moment, n, age) for n, answer in answers.items() for moment, age in answer.get(value, ()))
        merged: list[Look] = []
        for moment, number, age in seen:
            latest[number] = age
            merged.append((moment, max(latest.values())))
        found[value] = merged
    return found


def workers(query: Query[Any], answers: Answers) -> list[WorkerInfo]:
    """A worker that serves several shards is in the table of each."""

    def both(one: WorkerInfo, other: WorkerInfo) -> WorkerInfo:
        latest = max(one, other, key=lambda w: w.last_heartbeat)
        asked = [w.drain_requested_at for w in (one, other) if w.drain_requested_at is not None]
        return replace(
            latest,
            current_load=one.current_load + other.current_load,
            started_at=min(one.started_at, other.started_at),
            drain_requested_at=min(asked, default=None),
            is_leader=one.is_leader or other.is_leader,
            is_undeclared=one.is_undeclared and other.is_undeclared,
        )

    found = grouped(lists(query, answers), lambda w: w.id, both)
    return sorted(found, key=lambda w: (w.started_at, w.id))


def deploys(query: Query[Any], answers: Answers) -> list[Deploy]:
    def both(one: Deploy, other: Deploy) -> Deploy:
        return replace(one, seen_at=min(one.seen_at, other.seen_at))

    found = grouped(lists(query, answers), lambda d: d.deployed_at, both)
    return sorted(found, key=lambda d: d.deployed_at, reverse=True)[: query.parameters["limit"]]


def pauses(query: Query[Any], answers: Answers) -> list[Paused]:
    return grouped(
        lists(query, answers), lambda p: (p.kind, p.value), lambda a, b: min(a, b, key=lambda p: p.paused_at)
    )


def limits(query: Query[Any], answers: Answers) -> list[LimitInfo]:
    def both(one: LimitInfo, other: LimitInfo) -> LimitInfo:
        until = [w.blocked_until for w in (one, other) if w.blocked_until is not None]
        return replace(one, running=one.running + other.running, blocked_until=max(until, default=None))

    return sorted(grouped(lists(query, answers), lambda w: w.name, both), key=lambda w: w.name)


def limit_keys(query: Query[Any], answers: Answers) -> list[LimitKey]:
    def both(one: LimitKey, other: LimitKey) -> LimitKey:
        until = [k.blocked_until for k in (one, other) if k.blocked_until is not None]
        tokens = [k.tokens for k in (one, other) if k.tokens is not None]
        return LimitKey(one.key, one.running + other.running, min(tokens, default=None), max(until, default=None))

    found = grouped(lists(query, answers), lambda k: k.key, both)
    return sorted(found, key=lambda k: (-k.running, k.key))[: query.parameters["most"]]


def shares(query: Query[Any], answers: Answers) -> list[ShareInfo]:
    def both(one: ShareInfo, other: ShareInfo) -> ShareInfo:
        ages = [s.oldest_age for s in (one, other) if s.oldest_age is not None]
        return replace(
            one,
            running=one.running + other.running,
            waiting=one.waiting + other.waiting,
            is_capped=one.is_capped or other.is_capped,
            oldest_age=max(ages, default=None),
        )

    found = grouped(lists(query, answers), lambda s: s.share, both)
    return sorted(found, key=lambda s: (-s.waiting, s.share))[: query.parameters["most"]]


def breakers(query: Query[Any], answers: Answers) -> list[BreakerInfo]:
    """Each shard's leader judges the attempts there: of those that differ, the one that lets the least run."""
    order = {"open": 0, "probing": 1, "closed": 2}
    found = grouped(lists(query, answers), lambda b: b.name, lambda a, b: min(a, b, key=lambda each: order[each.state]))
    return sorted(found, key=lambda b: b.name)


def stats(query: Query[Any], answers: Answers) -> list[Stat]:
    return _summed(lists(query, answers))


def series(query: Query[Any], answers: Answers) -> list[Point]:
    found = grouped(lists(query, answers), lambda p: p.start, _points)
    return sorted(found, key=lambda p: p.start)


def series_by(query: Query[Any], answers: Answers) -> list[Any]:
    """In each step the busiest, and the others under the label ''."""
    found: dict[Any, list[Point]] = defaultdict(list)
    for moment, points in lists(query, answers):
        found[moment] += points
    return [(moment, _busiest(points, query.parameters["limit"])) for moment, points in sorted(found.items())]


def busiest(query: Query[Any], answers: Answers) -> list[Point]:
    found: list[Point] = grouped(lists(query, answers), lambda p: p.label, _points)
    return sorted(found, key=lambda p: (-_count(p), p.label))[: query.parameters["limit"]]


def top_running(query: Query[Any], answers: Answers) -> list[Running]:
    of = sum(answer[0].of for answer in answers.values() if answer)
    rows = sorted(lists(query, answers), key=lambda r: (-r.seconds, r.id))[: query.parameters["limit"]]
    return [row._replace(of=of) for row in rows]


def key_counts(query: Query[Any], answers: Answers) -> list[KeyCount]:
    def both(one: KeyCount, other: KeyCount) -> KeyCount:
        newest = [c.newest for c in (one, other) if c.newest is not None]
        unfinished = one.unfinished + other.unfinished
        return KeyCount(one.key_id, one.tasks + other.tasks, unfinished, max(newest, default=None))

    return grouped(lists(query, answers), lambda c: c.key_id, both)


def _busiest(points: list[Point], limit: int) -> list[Point]:
    merged: list[Point] = grouped(points, lambda p: p.label, _points)
    named = sorted((p for p in merged if p.label), key=lambda p: (-_count(p), p.label))
    rest = [*named[limit:], *(p for p in merged if not p.label)]
    if not rest:
        return named
    return [*named[:limit], Point(_summed([s for p in rest for s in p.stats]), label="")]


def _points(one: Point, other: Point) -> Point:
    return Point(_summed([*one.stats, *other.stats]), one.start, one.label)


def _summed(some: list[Stat]) -> list[Stat]:
    by_key: dict[Any, list[Stat]] = defaultdict(list)
    for stat in some:
        by_key[stat.key].append(stat)
    return [together(each, key) for key, each in by_key.items()]


def _count(point: Point) -> int:
    return sum(stat.count for stat in point.stats)

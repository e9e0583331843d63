"""Which metrics there are: names and labels, made of stats, levels and figures. Nothing here reads a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from tasklib.metrics.flow_control import of_breakers, of_limits
from tasklib.schedules import Reason
from tasklib.stats import BOUNDS, Key, Stat, together
from tasklib.store.breakers import BreakerInfo
from tasklib.store.levels import NAMES, FleetFigures, QueueLevel, StateCount
from tasklib.store.limits import LimitInfo
from tasklib.store.stats import Point

STATUSES = ("completed", "failed", "dead_letter", "cancelled", "released", "replayed")
RAN = ("completed", "failed", "dead_letter", "cancelled")
REASONS = ("error", "timeout", "retry", "rejected", "crash", "lost")
DUTIES = (
    *("dead workers", "orphans", "overdue", "gates", "snapshot", "stats", "breakers", "idempotency", "dead letters"),
    *("retention", "replays", "payloads"),
    *("election", "cancel requests", "registration", "schedules"),
)
PROMOTIONS = (("low", "medium"), ("low", "high"), ("medium", "high"))
MOST_QUEUES = 200
"""Queues beyond these, the busiest, are counted together as `(other)`, unless the server is set otherwise."""
OTHER = "(other)"


@dataclass(frozen=True)
class Reading:
    """All that one scrape of the server has read."""

    totals: list[Stat]
    levels: list[QueueLevel]
    states: list[StateCount]
    fleet: FleetFigures
    recent: list[Point] = field(default_factory=list)
    """What happened in the last hour, by queue: how long a task takes there."""
    limits: list[LimitInfo] = field(default_factory=list)
    breakers: list[BreakerInfo] = field(default_factory=list)


def of_server(reading: Reading, most_queues: int = MOST_QUEUES) -> Iterator[Metric]:
    """Everything the server exposes."""
    levels = _busiest(reading.levels, most_queues)
    yield from of_stats(reading.totals)
    yield from _of_levels(levels)
    yield _backlog(levels, reading.recent, most_queues)
    yield from _of_states(reading.states)
    yield from _of_fleet(reading.fleet)
    yield from _of_schedules(reading.fleet)
    yield from of_limits(reading.limits)
    yield from of_breakers(reading.breakers)


def of_stats(stats: Sequence[Stat]) -> Iterator[Metric]:
    """Counters and histograms: the same of a whole fleet, and of one worker."""
    counts = _Counts(stats)
    yield _counter(
        "task_outcomes", "How tasks and attempts ended, exactly.", ["priority", "status"],
        {(level, status): counts.of(status, level) for level in NAMES for status in STATUSES},
    )  # fmt: skip
    yield _counter(
        "task_retries", "Failed attempts for which a retry was scheduled.", ["priority", "reason"],
        {(level, reason): counts.of("failed", level, reason) for level in NAMES for reason in REASONS},
    )  # fmt: skip
    yield _counter(
        "tasks_failed", "Failed attempts, retried or not.", ["reason"],
        {(r,): counts.of("failed", reason=r) + counts.of("dead_letter", reason=r) for r in REASONS},
    )  # fmt: skip
    yield _counter("tasks_dlq", "Tasks that became dead letters.", [], {(): counts.of("dead_letter")})
    yield _counter(
        "tasks_promoted", "Tasks that were claimed at a higher level than their own because of aging.", ["from", "to"],
        {(was, now): counts.of("promoted", was, now) for was, now in PROMOTIONS},
    )  # fmt: skip
    yield _counter("task_results_refused", "Stale results, refused because another attempt held the lease.", [],
                   {(): counts.of("stale")})  # fmt: skip
    yield _counter(
        "worker_heartbeat_failures", "Heartbeats that a worker could not send, and workers declared dead.", ["reason"],
        {("not_sent",): counts.of("heartbeat_failed"), ("declared_dead",): counts.of("worker_died")},
    )  # fmt: skip
    yield _counter(
        "duty_failures", "Failed runs of the leader's duties, of the election and of the statistics report.",
        ["duty"], {(duty,): counts.of("duty_failed", reason=duty) for duty in DUTIES},
    )  # fmt: skip
    yield _summary("claim_batch_size", "Tasks per claim that found some.", counts.of("claim"), counts.of("claimed"))
    yield _summary("settle_batch_size", "Outcomes stored per flush.", counts.of("settle"), counts.of("settled"))
    yield _counter("schedule_slots_fired", "Slots of schedules that were run.", [], {(): counts.of("slot_fired")})
    yield _counter(
        "schedule_slots_skipped", "Slots of schedules that were not run, and why.", ["reason"],
        {(reason,): counts.of("slot_skipped", reason=reason) for reason in get_args(Reason)},
    )  # fmt: skip
    yield _counter(
        "submissions_merged", "Submissions that met a task with their merge key, and what became of it.", ["reason"],
        {(reason,): counts.of("merged", reason=reason) for reason in ("returned", "replaced")},
    )  # fmt: skip
    yield _durations(counts)
    yield _waits(counts)
    yield _lateness(counts)


class _Counts:
    """Stats, added up by whatever is asked for."""

    def __init__(self, stats: Sequence[Stat]) -> None:
        self._tallies = stats

    def of(self, outcome: str, level: str | None = None, reason: str | None = None) -> int:
        return sum(t.count for t in self.matching([outcome], level, reason))

    def matching(self, outcomes: Sequence[str], level: str | None, reason: str | None = None) -> Iterable[Stat]:
        for stat in self._tallies:
            key = stat.key
            if key.outcome in outcomes and level in (None, key.level) and reason in (None, key.reason):
                yield stat

    def together(self, outcomes: Sequence[str], level: str) -> Stat:
        return together(self.matching(outcomes, level), Key("", "", level, ""))


def _durations(counts: _Counts) -> Metric:
    family = HistogramMetricFamily(
        "task_duration_seconds", "From the start of the function to its outcome being stored.",
        labels=["priority", "status"],
    )  # fmt: skip
    for level in NAMES:
        for status in RAN:
            ended = counts.together([status], level)
            family.add_metric([level, status], _cumulative(ended.buckets), sum_value=ended.seconds)
    return family


def _waits(counts: _Counts) -> Metric:
    family = HistogramMetricFamily(
        "task_wait_seconds", "From being due to the start of the function.", labels=["priority"]
    )
    for level in NAMES:
        ended = counts.together(RAN, level)
        family.add_metric([level], _cumulative(ended.waits), sum_value=ended.waited)
    return family


def _lateness(counts: _Counts) -> Metric:
    family = HistogramMetricFamily("schedule_lateness_seconds", "From a slot to the making of its task.", labels=[])
    fired = together(counts.matching(["slot_lateness"], None), Key("", "", "", ""))
    family.add_metric([], _cumulative(fired.waits), sum_value=fired.waited)
    return family


def _cumulative(buckets: Sequence[int]) -> list[tuple[str, float]]:
    counts = buckets or [0] * (len(BOUNDS) + 1)
    bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    return [(bound, float(sum(counts[: place + 1]))) for place, bound in enumerate(bounds)]


def _of_levels(levels: Sequence[QueueLevel]) -> Iterator[Metric]:
    depth = GaugeMetricFamily("queue_depth", "Tasks that are due and waiting.", labels=["queue", "priority"])
    estimated = GaugeMetricFamily(
        "queue_depth_estimated", "1 if the depth is the leader's last count, or a lower bound.",
        labels=["queue", "priority"],
    )  # fmt: skip
    age = GaugeMetricFamily(
        "queue_age_seconds", "Waiting time of the waiting tasks; percentile max is the oldest.",
        labels=["queue", "priority", "percentile"],
    )  # fmt: skip
    for level in levels:
        labels = [level.queue, level.level]
        depth.add_metric(labels, level.depth)
        estimated.add_metric(labels, level.is_estimated)
        ages = {"p50": level.p50, "p95": level.p95, "p99": level.p99, "max": level.oldest_age_seconds}
        for percentile, seconds in ages.items():
            if seconds is not None:
                age.add_metric([*labels, percentile], seconds)
    # A level at which nothing waits has a depth too, so that a graph falls to zero and an alert ends.
    there = {(level.queue, level.level) for level in levels}
    for queue in sorted({level.queue for level in levels} or {"default"}):
        for name in NAMES:
            if (queue, name) not in there:
                depth.add_metric([queue, name], 0)
                estimated.add_metric([queue, name], 0)
    yield from (depth, estimated, age)


def _busiest(levels: Sequence[QueueLevel], most: int) -> list[QueueLevel]:
    """As they are, but for queues beyond the busiest ones, which become one."""
    depths: dict[str, int] = {}
    for level in levels:
        depths[level.queue] = depths.get(level.queue, 0) + level.depth
    kept = set(sorted(depths, key=lambda queue: -depths[queue])[:most])
    found = [level for level in levels if level.queue in kept]
    for name in NAMES:
        rest = [level for level in levels if level.queue not in kept and level.level == name]
        if rest:
            oldest = max(level.oldest_age_seconds for level in rest)
            is_estimated = any(level.is_estimated for level in rest)
            depth = sum(level.depth for level in rest)
            found.append(QueueLevel(OTHER, name, depth, is_estimated, is_estimated, oldest, None, None, None, True))
    return found


def _backlog(levels: Sequence[QueueLevel], recent: Sequence[Point], most: int) -> Metric:
    family = GaugeMetricFamily(
        "queue_backlog_seconds",
        "Waiting tasks times their average run time in the last hour (1 s if none ran): seconds of one slot.",
        labels=["queue"],
    )
    means = {point.label: point.mean_seconds for point in recent}
    depths: dict[str, int] = {"default": 0}
    for level in levels:
        depths[level.queue] = depths.get(level.queue, 0) + level.depth
    # Queues in which tasks ran and none waits have a backlog of zero, as far as there is room for them.
    empty = [queue for queue in means if queue not in depths][: max(0, most - len(depths))]
    depths |= dict.fromkeys(empty, 0)
    for queue, depth in sorted(depths.items()):
        mean = means.get(queue)
        family.add_metric([queue], depth * (1.0 if mean is None else mean))
    return family


def _of_states(states: Sequence[StateCount]) -> Iterator[Metric]:
    count = GaugeMetricFamily("task_state_total", "Tasks in each state now.", labels=["status"])
    estimated = GaugeMetricFamily(
        "task_state_estimated", "1 if the number is an estimate from PostgreSQL's statistics.", labels=["status"]
    )
    for state in states:
        if state.count is not None:
            count.add_metric([state.state], state.count)
            estimated.add_metric([state.state], state.is_estimated)
    yield from (count, estimated)


def _of_fleet(fleet: FleetFigures) -> Iterator[Metric]:
    workers = GaugeMetricFamily("workers_total", "Workers by status.", labels=["status"])
    for status in ("active", "draining", "dead"):
        workers.add_metric([status], fleet.workers.get(status, (0, 0, 0))[0])
    yield workers
    slots, taken = fleet.slots("active", "draining")
    yield _gauge("worker_slots", "Slots of active workers: how many tasks can run at once.", fleet.slots("active")[0])
    yield _gauge(
        "worker_capacity_used_ratio", "Slots in use, as a fraction of all slots of live workers.", taken / max(1, slots)
    )
    yield _gauge("leader_term", "The term of the leader; it grows with each change of the leader.", fleet.term or 0)
    yield _gauge("leader_present", "1 while there is a leader.", fleet.has_leader)
    if fleet.snapshot_age_seconds is not None:
        yield _gauge("leader_snapshot_age_seconds", "How old the leader's last count is.", fleet.snapshot_age_seconds)
    yield _gauge("tasks_table_dead_tuples", "Dead rows of the table, from PostgreSQL's statistics.", fleet.dead_tuples)
    yield _gauge(
        "database_oldest_xmin_age",
        "Transactions since the oldest snapshot that a session holds.",
        fleet.oldest_xmin_age,
    )
    yield _gauge(
        "database_oldest_transaction_seconds", "Age of the oldest transaction with a snapshot.",
        fleet.oldest_transaction_seconds,
    )  # fmt: skip


def _of_schedules(fleet: FleetFigures) -> Iterator[Metric]:
    late = fleet.schedule_late_seconds
    yield _gauge("schedule_oldest_due_seconds", "How long the oldest slot is due without being run or skipped.", late)
    yield _gauge("schedules_paused", "Schedules that are paused.", fleet.schedules_paused)
    yield _gauge("schedules_failing", "Schedules whose last run became a dead letter.", fleet.schedules_failing)


def of_slots(size: int, taken: int) -> Iterator[Metric]:
    """What a worker says of its own slots."""
    yield _gauge("worker_slots", "Slots of this worker: how many tasks can run at once.", size)
    yield _gauge("worker_capacity_used_ratio", "Slots taken, of all.", min(1.0, taken / max(1, size)))


def _gauge(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_, value=value)


def _summary(name: str, help_: str, count: int, total: int) -> Metric:
    return SummaryMetricFamily(name, help_, count_value=count, sum_value=total)


def _counter(name: str, help_: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]) -> Metric:
    family = CounterMetricFamily(name, help_, labels=labels)
    for given, value in values.items():
        family.add_metric(given, value)
    return family

"""Counting in memory."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tasklib.stats import BOUNDS, MOST_PAIRS, OTHER, Key, StatsCollector, percentile
from tasklib.store.claim import Claimed

DUE = "2026-01-01 00:00:00.5+00"
DUE_SINCE_1970 = 1767225600.5


class Ran(NamedTuple):
    """An attempt."""

    claimed: Claimed
    started_at: float


def row(name: str = "t", queue: str = "q", priority: int = 0, due: str = DUE, effective: int | None = None) -> Claimed:
    height = priority if effective is None else effective
    return Claimed("id", name, "{}", 1, 0, 3, None, 0, priority, queue, "{}", None, due, height)


def test_every_completion_is_counted_and_the_times_of_a_large_batch_stand_for_all_of_it() -> None:
    collector = StatsCollector()
    collector.clock_offset = DUE_SINCE_1970 - 100.0
    collector.completed([Ran(row(), 103.0)] * 1001 + [Ran(row("rare"), 100.0)], now=103.2)
    common, rare = collector.take()
    assert (common.key, common.count) == (Key("t", "q", "medium", "completed"), 1001)
    assert sum(common.buckets) == sum(common.waits) == 1001
    assert common.seconds == pytest.approx(1001 * 0.2)
    assert common.waited == pytest.approx(1001 * 3.0)
    assert (rare.key.name, rare.count, rare.waited) == ("rare", 1, pytest.approx(0.0))


def test_of_a_batch_of_one_kind_each_is_counted_too() -> None:
    collector = StatsCollector()
    collector.completed([], now=1.0)
    assert collector.take() == []
    collector.completed([Ran(row(), 0.0)] * 40, now=1.0)
    assert [(t.count, sum(t.buckets), t.seconds) for t in collector.take()] == [(40, 40, pytest.approx(40.0))]


def test_nothing_is_handed_over_twice_and_the_process_remembers_all() -> None:
    collector = StatsCollector()
    collector.ended(row(priority=-5), "failed", "timeout", (0.0, 7.0))
    assert [t.key for t in collector.take()] == [Key("t", "q", "low", "failed", "timeout")]
    assert collector.take() == []
    collector.ended(row(priority=-5), "failed", "timeout", (0.0, 7.0))
    assert [t.count for t in collector.take()] == [1]
    assert [(t.count, sum(t.buckets)) for t in collector.totals()] == [(2, 2)]


def test_waiting_is_not_counted_before_the_databases_clock_is_known() -> None:
    collector = StatsCollector()
    collector.ended(row(), "completed", ran=(0.0, 7.0))
    assert [(t.waited, t.waits) for t in collector.take()] == [(0.0, ())]


def test_a_time_beyond_pythons_calendar_counts_as_no_waiting() -> None:
    collector = StatsCollector()
    collector.clock_offset = 0.0
    collector.ended(row(due="294276-12-31 23:59:59+00"), "completed", ran=(0.0, 1.0))
    assert [t.waited for t in collector.take()] == [0.0]


def test_tasks_raised_to_another_level_are_promoted_when_they_are_claimed() -> None:
    collector = StatsCollector()
    collector.claimed([row(priority=-10, effective=0), row(priority=-10), row(priority=50, effective=100)])
    found = {(t.key.outcome, t.key.level, t.key.reason): t.count for t in collector.take()}
    assert found == {
        ("claim", "", ""): 1,
        ("claimed", "", ""): 3,
        ("promoted", "low", "medium"): 1,
        ("promoted", "medium", "high"): 1,
    }


def test_endless_new_queues_share_one_key() -> None:
    collector = StatsCollector()
    for number in range(MOST_PAIRS + 300):
        collector.completed([Ran(row(queue=f"tenant-{number}"), 0.0)], now=1.0)
    stats = collector.take()
    assert len(stats) == MOST_PAIRS + 1
    assert [t.count for t in stats if t.key.queue == OTHER] == [300]


@pytest.mark.parametrize(
    ("buckets", "share", "seconds"),
    [
        ((), 0.5, None),
        ((0,) * 16, 0.5, None),
        ((4,), 0.5, BOUNDS[0] / 2),
        ((0, 0, 0, 0, 0, 0, 0, 10, 10), 0.75, 1.75),
        ((0,) * 15 + (3,), 0.5, BOUNDS[-1]),
        ((99,) + (0,) * 14 + (1,), 0.999, BOUNDS[-1]),
    ],
)
def test_percentile_of_a_histogram(buckets: tuple[int, ...], share: float, seconds: float | None) -> None:
    assert percentile(buckets, share) == (None if seconds is None else pytest.approx(seconds))

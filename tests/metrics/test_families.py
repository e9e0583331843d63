"""What is exposed, and that it is what was counted."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tasklib.metrics import exposition, families
from tasklib.metrics.families import MOST_QUEUES, OTHER, Reading
from tasklib.stats import Key, Stat, StatsCollector
from tasklib.store.claim import Claimed
from tasklib.store.levels import FleetFigures, QueueLevel, StateCount
from tasklib.store.stats import Point

NOBODY = FleetFigures({}, None, False, None, 0, 0, 0.0)


Samples = dict[tuple[str, frozenset[str]], float]


def samples(text: bytes) -> Samples:
    """Each sample by its name and the values of its labels."""
    return {
        (s.name, frozenset(s.labels.values())): s.value
        for family in text_string_to_metric_families(text.decode())
        for s in family.samples
    }


def at(found: Samples, name: str, *labels: str) -> float:
    return found[name, frozenset(labels)]


def read(reading: Reading) -> Samples:
    return samples(exposition.text(families.of_server(reading)))


def level(queue: str, name: str, depth: int, *, estimated: bool = False) -> QueueLevel:
    return QueueLevel(queue, name, depth, estimated, estimated, 9.0, 1.0, 2.0, 3.0, False)


def test_counters_are_there_from_the_start_at_zero() -> None:
    found = read(Reading([], [], [], NOBODY))
    assert at(found, "tasks_dlq_total") == 0
    assert at(found, "task_outcomes_total", "low", "completed") == 0
    assert at(found, "task_duration_seconds_count", "high", "failed") == 0
    assert at(found, "tasks_promoted_total", "low", "medium") == 0
    assert at(found, "queue_depth", "default", "high") == 0
    assert at(found, "worker_capacity_used_ratio") == 0


def test_what_was_counted_is_exposed_under_the_seeds_names() -> None:
    buckets = [0] * 7 + [3] + [0] * 8
    totals = [
        Stat(Key("", "", "low", "completed"), 3, 2.0, 30.0, buckets, buckets),
        Stat(Key("", "", "high", "failed", "timeout"), 2),
        Stat(Key("", "", "high", "dead_letter", "timeout"), 1),
        Stat(Key("", "", "low", "promoted", "high"), 7),
        Stat(Key("", "", "medium", "stale"), 1),
        Stat(Key("", "", "", "claim"), 2),
        Stat(Key("", "", "", "claimed"), 10),
        Stat(Key("", "", "", "worker_died"), 4),
    ]
    fleet = FleetFigures({"active": (2, 20, 15), "dead": (1, 10, 0)}, 5, True, 3.0, 11, 12, 13.0)
    states = [StateCount("completed", 10_000_000, True), StateCount("cancelled", None, True)]
    recent = [Point([Stat(Key("", "", "", "completed"), 4, 2.0, 0.0, [0] * 6 + [4] + [0] * 9)], label="mail")]
    found = read(Reading(totals, [level("mail", "high", 2001, estimated=True)], states, fleet, recent))
    assert at(found, "task_duration_seconds_bucket", "low", "completed", "0.5") == 0
    assert at(found, "task_duration_seconds_bucket", "low", "completed", "1") == 3
    assert at(found, "task_duration_seconds_sum", "low", "completed") == 2.0
    assert at(found, "task_wait_seconds_sum", "low") == 30.0
    assert at(found, "task_retries_total", "high", "timeout") == 2
    assert at(found, "tasks_failed_total", "timeout") == 3
    assert at(found, "tasks_dlq_total") == 1
    assert at(found, "tasks_promoted_total", "low", "high") == 7
    assert at(found, "task_results_refused_total") == 1
    assert (at(found, "claim_batch_size_count"), at(found, "claim_batch_size_sum")) == (2, 10)
    assert at(found, "worker_heartbeat_failures_total", "declared_dead") == 4
    assert at(found, "workers_total", "active") == 2
    assert at(found, "worker_capacity_used_ratio") == 0.75
    assert at(found, "leader_term") == 5
    assert at(found, "task_state_total", "completed") == 10_000_000
    assert at(found, "task_state_estimated", "completed") == 1
    assert ("task_state_total", frozenset({"cancelled"})) not in found
    assert at(found, "queue_depth", "mail", "high") == 2001
    assert at(found, "queue_depth_estimated", "mail", "high") == 1
    assert at(found, "queue_depth", "mail", "low") == 0
    assert at(found, "queue_age_seconds", "mail", "high", "p99") == 3.0
    assert at(found, "queue_backlog_seconds", "mail") == 2001 * 0.5


def test_a_queue_for_each_customer_does_not_make_a_series_for_each() -> None:
    levels = [level(f"tenant-{n}", "low", n + 1) for n in range(MOST_QUEUES + 50)]
    found = read(Reading([], levels, [], NOBODY))
    assert at(found, "queue_depth", OTHER, "low") == sum(range(1, 51))
    assert len([key for key in found if key[0] == "queue_depth" and found[key]]) == MOST_QUEUES + 1


def test_no_metric_has_more_queues_than_the_server_is_set_to() -> None:
    levels = [level(f"tenant-{n}", "low", n + 1) for n in range(50)]
    recent = [Point([Stat(Key("", "", "", "completed"), 4, 2.0, 0.0, [0] * 16)], label=f"old-{n}") for n in range(50)]
    reading = Reading([], levels, [], NOBODY, recent)
    for most in (1, 10):
        text = exposition.text(families.of_server(reading, most)).decode()
        queues = {line.partition('queue="')[2].partition('"')[0] for line in text.splitlines() if 'queue="' in line}
        assert len(queues - {OTHER, "default"}) == most


@dataclass
class Idle:
    collector: StatsCollector
    concurrency: int = 4
    taken: int = 1


def test_a_worker_serves_what_it_has_counted_itself() -> None:
    row = Claimed("id", "t", "{}", 1, 0, 3, None, 0, 100, "q", "{}", None, "2026-01-01 00:00:00+00", 100)
    collector = StatsCollector()
    collector.ended(row, "dead_letter", "error", (0.0, 1.0))
    collector.take()
    with exposition.exposed(Idle(collector), 0, "127.0.0.1") as port:
        address = f"http://127.0.0.1:{port}/metrics"
        found = samples(urllib.request.urlopen(address, timeout=120).read())
    assert at(found, "tasks_dlq_total") == 1
    assert at(found, "worker_capacity_used_ratio") == 0.25

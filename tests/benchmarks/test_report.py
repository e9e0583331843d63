"""The report's arithmetic, on figures made up."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.peers.catalogue import SYSTEMS
from benchmarks.peers.drain import rates_of_parts
from benchmarks.peers.report import report
from benchmarks.peers.runner import in_turn
from benchmarks.peers.summary import Summary, steadiness_of
from benchmarks.peers.verdicts import Verdict, judge_all, number


def measured(system: str, workload: str, *rates: float, run: str = "1", **figures: Any) -> list[dict[str, Any]]:
    return [
        {
            "kind": "measurement",
            "run": run,
            "system": system,
            "workload": workload,
            "repeat": repeat,
            "n": 1000,
            "ok": True,
            "tasks_s": rate,
            **figures,
        }
        for repeat, rate in enumerate(rates)
    ]


def verdict(records: list[dict[str, Any]], workload: str, words: str) -> Verdict:
    [found] = [v for v in judge_all(Summary(records)) if v.workload == workload and words in v.requirement]
    return found


def test_figures_are_medians_with_their_spread() -> None:
    figure = Summary(measured("tasklib", "W3", 30.0, 10.0, 20.0)).figure("tasklib", "W3")
    assert figure is not None
    assert (figure.median, figure.least, figure.most) == (20.0, 10.0, 30.0)


def test_ratios_are_of_medians() -> None:
    records = measured("tasklib", "W3", 100.0, 300.0, 200.0) + measured("pgqueuer", "W3", 90.0, 100.0, 5000.0)
    assert Summary(records).ratio("tasklib", "pgqueuer", "W3") == 2.0


def test_what_went_wrong_does_not_count() -> None:
    records = measured("tasklib", "W3", 100.0) + measured("tasklib", "W3", 9000.0, ok=False)
    summary = Summary(records)
    assert summary.median("tasklib", "W3") == 100.0
    assert len(summary.failures) == 1


def test_the_last_run_of_a_workload_counts_unless_all_are_asked_for() -> None:
    records = measured("tasklib", "W1", 1.0, run="2") + measured("tasklib", "W3", 100.0, run="1")
    records += measured("tasklib", "W3", 200.0, run="2")
    assert Summary(records).median("tasklib", "W3") == 200.0
    assert Summary(records, all_runs=True).median("tasklib", "W3") == 150.0


@pytest.mark.parametrize(("rate", "word"), [(200.0, "pass"), (199.0, "FAIL")])
def test_twice_the_fastest_peer_is_at_least_twice(rate: float, word: str) -> None:
    records = measured("tasklib", "W3", rate) + measured("pgqueuer", "W3", 100.0)
    assert verdict(records, "W3", "pgqueuer").word == word


@pytest.mark.parametrize(("rate", "word"), [(101.0, "pass"), (100.0, "FAIL")])
def test_ahead_is_more_than_the_best_of_the_others(rate: float, word: str) -> None:
    records = measured("tasklib", "W1", rate) + measured("oban", "W1", 50.0) + measured("saq", "W1", 100.0)
    # Celery is ahead, but it isn't on PostgreSQL.
    found = verdict(records + measured("celery-threads", "W1", 500.0), "W1", "every PostgreSQL peer")
    assert (found.word, "saq" in found.found) == (word, True)


def test_of_latencies_less_is_better() -> None:
    records = measured("tasklib", "W5", 0.0, p50=0.9, p99=3.0) + measured("oban", "W5", 0.0, p50=1.2, p99=1.8)
    assert verdict(records, "W5", "p50").word == "pass"
    assert verdict(records, "W5", "p99").word == "FAIL"


def test_processor_time_is_server_and_worker_together() -> None:
    records = measured("tasklib", "W3", 1.0, cpu_server_10k=0.2, cpu_worker_10k=0.1)
    records += measured("graphile-worker", "W3", 1.0, cpu_server_10k=0.18, cpu_worker_10k=0.18)
    assert verdict(records, "W9", "every peer").word == "pass"
    unknown = measured("tasklib", "W3", 1.0, cpu_server_10k=None, cpu_worker_10k=0.1)
    assert verdict(unknown, "W9", "every peer").word == "not measured"


def test_two_workers_must_be_more_than_one() -> None:
    assert verdict(measured("tasklib", "W3", 100.0) + measured("tasklib", "W4", 100.0), "W4", "W3").word == "FAIL"
    assert verdict(measured("tasklib", "W3", 100.0) + measured("tasklib", "W4", 101.0), "W4", "W3").word == "pass"


def test_a_workload_is_held_against_another_of_the_same_run_only() -> None:
    records = measured("tasklib", "W3", 100.0, run="1") + measured("tasklib", "W7", 95.0, run="1")
    later = measured("tasklib", "W3", 200.0, run="2")
    assert verdict(records + later, "W7", "W3").word == "pass"
    assert verdict(records[1:] + later, "W7", "W3").word == "not measured"


def test_a_figure_that_was_not_measured_is_no_pass() -> None:
    assert {v.word for v in judge_all(Summary([]))} == {"not measured"}


def test_a_drain_that_gets_slower_is_told() -> None:
    slower = [50.0, 100.0, 100.0, 100.0, 100.0, 60.0, 60.0, 60.0, 60.0, 10.0]
    assert steadiness_of(slower) == 0.6
    assert steadiness_of(slower[:7]) is None
    assert verdict(measured("tasklib", "W8", 1.0, tenths_tasks_s=slower), "W8", "goes on").word == "FAIL"


def test_the_rate_of_each_tenth_is_read_between_two_looks() -> None:
    steadily = [(0, 10.0), (25, 10.5), (60, 11.2), (100, 12.0)]
    assert rates_of_parts(steadily, 100) == [50.0] * 10
    slower = [(0, 0.0), (50, 1.0), (100, 3.0)]
    assert rates_of_parts(slower, 100) == [50.0] * 5 + [25.0] * 5


def test_every_system_begins_and_ends_in_turn() -> None:
    systems = [SYSTEMS[name] for name in ("tasklib", "limit", "pgqueuer")]
    orders = [[system.name for system in in_turn(systems, repeat)] for repeat in range(3)]
    assert orders == [
        ["tasklib", "limit", "pgqueuer"],
        ["tasklib", "pgqueuer", "limit"],
        ["limit", "pgqueuer", "tasklib"],
    ]


def test_the_report_names_what_was_measured_and_what_failed() -> None:
    run = {
        "kind": "run",
        "run": "1",
        "commit": "abc",
        "repeats": 3,
        "machine": {"processor": "a processor", "cores": 2, "memory_gb": 8, "system": "Linux"},
        "postgresql": {"server_version": "18.1", "fsync": "on"},
        "systems": {"tasklib": {"version": "1", "runtime": "python 3.12", "options": {"concurrency": 500}}},
    }
    failed = measured("pgqueuer", "W3", 1.0, ok=False, error="it did\nnot start")
    text = report(Summary([run, *measured("tasklib", "W3", 12345.0), *failed]))
    assert "| tasklib | - | - | 12,345 |" in text
    assert "commit abc" in text
    assert "concurrency=500" in text
    assert "- pgqueuer W3, repeat 0: it did not start" in text


@pytest.mark.parametrize(
    ("value", "words"), [(None, "-"), (1234.5, "1,234"), (12.345, "12.3"), (0.456, "0.46"), (-0.1, "-0.10")]
)
def test_numbers_are_as_exact_as_they_deserve(value: float | None, words: str) -> None:
    assert number(value) == words

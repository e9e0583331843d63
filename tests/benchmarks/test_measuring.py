"""The benchmark itself, on a handful of tasks: TaskLib and the limit, with the interpreter of the tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.catalogue import SYSTEMS
from benchmarks.peers.lab import Lab
from benchmarks.peers.runner import Plan, carry_out
from benchmarks.peers.server import Server
from benchmarks.peers.stage import History, Stage
from benchmarks.peers.systems import WORKLOADS
from benchmarks.peers.workloads import RUN, Scale, measure

pytestmark = pytest.mark.long

TINY = Scale(History(200, 100), fixed=300, pings=3, warm_up_pings=1, ping_gap=0.01, producers=2, timeout=30.0)
Measure = Callable[[str, str], dict[str, object]]


@pytest.fixture(scope="module")
def server(server_url: str) -> Iterator[Server]:
    server = Server(server_url, prefix=f"bench_{os.getpid()}")
    yield server
    server.drop_templates()
    for name in ("tasklib", "tasklib_silent", "raw_copy", "limit", "limit_again"):
        server.drop(name)


@pytest.fixture
def measured(server: Server, tmp_path: Path) -> Measure:
    return lambda system, workload: measure(Stage(SYSTEMS[system], Lab(tmp_path), server), workload, TINY)


def test_every_workload_has_its_function() -> None:
    assert tuple(RUN) == WORKLOADS


@pytest.mark.parametrize(
    ("system", "workload"),
    [("tasklib", "W1"), ("raw-copy", "W2"), ("limit", "W1")],
)
def test_submissions_are_all_stored(measured: Measure, system: str, workload: str) -> None:
    figures = measured(system, workload)
    assert figures["ok"], figures


@pytest.mark.parametrize(
    ("system", "workload"), [("tasklib", "W3"), ("tasklib", "W7"), ("limit", "W3"), ("limit", "W6"), ("limit", "W8")]
)
def test_a_drain_runs_and_records_everything_once(measured: Measure, system: str, workload: str) -> None:
    figures = measured(system, workload)
    assert figures["ok"], figures
    assert (figures["ran"], figures["done"]) == (300, 300)
    assert figures["cpu_server_10k"] is None  # the server is not ours to look at


@pytest.mark.parametrize("system", ["tasklib", "limit"])
def test_pings_are_picked_up(measured: Measure, system: str) -> None:
    figures = measured(system, "W5")
    assert figures["ok"], figures
    assert figures["lost"] == 0


@pytest.mark.parametrize("system", ["tasklib-silent", "limit"])
def test_producers_submit_while_every_slot_is_taken(measured: Measure, system: str) -> None:
    figures = measured(system, "W10")
    assert figures["ok"], figures
    assert figures["stored"] is not None


def test_a_run_measures_systems_in_turn_and_leaves_nothing_behind(server: Server, tmp_path: Path) -> None:
    records: list[dict[str, object]] = []
    plan = Plan([SYSTEMS["limit"], replace(SYSTEMS["limit"], name="limit-again")], ["W1"], 1, TINY)
    carry_out(plan, Lab(tmp_path), server, None, records.append, "now")
    assert [record["system"] for record in records] == ["limit", "limit-again"]
    assert all(record["ok"] for record in records)
    assert not Lab(tmp_path).run_dir.exists()
    assert not server.templates

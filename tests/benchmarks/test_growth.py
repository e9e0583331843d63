"""Growth and profile, small enough to see that they measure what they say."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.growth.__main__ import run as run_growth
from benchmarks.growth.dimensions import DIMENSIONS, TITLES
from benchmarks.growth.measuring import measure
from benchmarks.growth.scene import Scene
from benchmarks.peers.records import read
from benchmarks.peers.server import Server
from benchmarks.profile.__main__ import run as run_profile
from benchmarks.profile.stopwatch import Stopwatch
from benchmarks.schema import BenchSchema, schema_on

pytestmark = pytest.mark.long

SOME = ("backlog", "other_queues", "payload", "workers")


@pytest.fixture
def schema(server_url: str) -> Iterator[BenchSchema]:
    with schema_on(Server(server_url, prefix=f"bench_{os.getpid()}"), "growth") as schema:
        yield schema


@pytest.fixture
def quick(tmp_path: Path) -> argparse.Namespace:
    return argparse.Namespace(
        quick=True, only=",".join(SOME), out=tmp_path / "out.jsonl", charts=tmp_path, lab=tmp_path
    )


def test_every_dimension_has_a_title_and_two_points() -> None:
    assert {*DIMENSIONS, "workers"} == TITLES.keys()
    for dimension in DIMENSIONS.values():
        assert len(list(dimension(False))) >= len(list(dimension(True))) == 2


def test_dimensions_are_measured_and_drawn(schema: BenchSchema, quick: argparse.Namespace) -> None:
    run_growth(schema, quick)
    points = [record for record in read(quick.out) if record["kind"] == "growth"]
    assert {point["dimension"] for point in points} == set(SOME)
    for point in points:
        assert point["claim_ms"] > 0
        assert (point["server_us"] is None) == (schema.postmaster is None)
    assert "pending tasks" in (quick.charts / "growth.svg").read_text()


def test_a_scene_that_grows_keeps_what_is_there(schema: BenchSchema) -> None:
    Scene("history", 0, "0", pending=700, finished=0).set(schema)
    figures = measure(schema, Scene("history", 1, "1", pending=1_200, finished=900, grows=True), rounds=1)
    # 1,000 of a round and 40 of each warm-up were replaced.
    assert schema.value("SELECT count(*) FROM tasks WHERE state = 'pending'") == 1_200
    assert schema.value("SELECT count(*) FROM tasks WHERE state = 'completed'") == 900 + 1_000 + 6 * 40
    assert figures["claim_pages"]


def test_the_stages_of_a_worker_add_up(schema: BenchSchema, quick: argparse.Namespace) -> None:
    figures = run_profile(schema, quick)
    assert figures["tasks_s"] > 0
    assert min(figures["stages_us"].values()) > -0.5
    assert sum(figures["stages_us"].values()) == pytest.approx(figures["worker_watched_us"], rel=0.05)


def test_a_stopwatch_counts_each_moment_for_the_innermost_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 3.0, 6.0, 10.0, 15.0])
    monkeypatch.setattr("time.thread_time", lambda: next(clock))
    watch = Stopwatch()
    with watch.stage("outer"), watch.stage("inner"):
        pass
    assert watch.read() == {"event loop, and all else": 1.0 + 5.0, "outer": 2.0 + 4.0, "inner": 3.0}

"""The figures on the page about scale are those of the recorded runs, and its numbers those of the code."""

from __future__ import annotations

import pytest

from benchmarks.simulation import fleet, predict
from benchmarks.simulation.costs import kept, measured_costs
from benchmarks.simulation.page import PAGE, with_tables
from tasklib import Config
from tasklib.maintenance import batches
from tasklib.shards import MOST_SHARD

DEFAULTS = Config("postgresql://")


def test_the_tables_are_those_of_the_recorded_runs() -> None:
    assert PAGE.read_text() == with_tables(PAGE.read_text()), "run: python -m benchmarks.simulation page"


@pytest.mark.parametrize(
    ("sentence", "value"),
    [
        ("A server with {} such cores", predict.NODE.cores),
        ("of connections, {:,} per server", predict.NODE.connections),
        ("flushes in {:g} ms", predict.NODE.flush_seconds * 1000),
        ("{:g} tasks of 100 ms each second", predict.IDLE_RATE),
        ("workers of {} slots of which", predict.SLOTS),
        ("{} workers of each shard listen", predict.LISTENING),
        ("submitted {} at a time", predict.AT_ONCE),
        ("ids have room for {:,}", MOST_SHARD + 1),
        ("grow from {:,} up to", batches.FIRST),
        ("up to {:,} tasks", batches.MOST),
        ("count as dead after {:g} s", DEFAULTS.heartbeat_timeout_seconds),
        ("the leader looks every {:g} s", DEFAULTS.sweep_interval_seconds),
        ("about {:.1f} MB of the server's memory", measured_costs().connection_bytes / 1e6),
    ],
)
def test_a_number_on_the_page_is_that_of_the_code_or_the_run(sentence: str, value: float) -> None:
    assert sentence.format(value) in " ".join(PAGE.read_text().split())


def test_the_model_has_the_intervals_of_the_code() -> None:
    assert DEFAULTS.heartbeat_timeout_seconds == fleet.DEAD_AFTER_SECONDS
    assert DEFAULTS.leader_lease_seconds == fleet.LEASE_SECONDS
    assert DEFAULTS.sweep_interval_seconds >= fleet.SWEEP_SECONDS
    assert kept()["predicted"]["node"]["cores"] == predict.NODE.cores

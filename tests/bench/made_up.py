"""Invented results."""

from __future__ import annotations

from collections.abc import Mapping

from tasklib.bench.machine import Facts
from tasklib.bench.rounds import Sample
from tasklib.bench.running import Result
from tasklib.bench.workloads import WORKLOADS

FACTS = Facts(
    tasklib="1.2.3",
    commit="abc1234",
    python="3.11.7",
    psycopg="3.2.1",
    uvloop=None,
    system="Linux 6.1 x86_64",
    processor="A Processor",
    cores=4,
    memory_gb=16.0,
    postgres="18.1",
    server="embedded",
    filesystem="ext4",
    settings={"fsync": "on"},
    configuration={"listen": False},
)
DETAILS: Mapping[str, Mapping[str, float | None]] = {
    "W5": {"p50_ms": 1.25, "p99_ms": 4.5, "from_call_p50_ms": 2.0, "from_call_p99_ms": 6.0},
    "W8": {"first_quarter": 900.0, "last_quarter": 810.0, "last_to_first": 0.9},
    "W9": {"server": 0.75, "worker": 0.5},
    "W12": {"p50_ms": 2.5, "p99_ms": 9.0, "from_call_p50_ms": 4.0, "from_call_p99_ms": 11.0},
}


def result(id_: str, *values: float | None, details: Mapping[str, float | None] | None = None) -> Result:
    """A workload that gave these values, and twice as much on the other side if it has one."""
    workload = WORKLOADS[id_]
    return Result(
        workload,
        100,
        [
            Sample(value, 2 * value if value and workload.compared_with else None, details or DETAILS.get(id_, {}))
            for value in values
        ],
    )


def results(*values: float) -> list[Result]:
    return [result(id_, *values) for id_ in WORKLOADS]

"""Running workloads, the systems in turn: what the machine does meanwhile falls on all of them alike."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from benchmarks.peers.lab import Lab
from benchmarks.peers.records import Record
from benchmarks.peers.server import Redis, Server
from benchmarks.peers.stage import Stage
from benchmarks.peers.systems import System
from benchmarks.peers.workloads import Scale, measure

MOST_FAILURES = 2
"""A system that failed a workload this often is left out of it: a timeout takes minutes."""


@dataclass(frozen=True)
class Plan:
    """What to run."""

    systems: Sequence[System]
    workloads: Sequence[str]
    repeats: int
    scale: Scale

    def turns(self) -> Iterator[tuple[int, str, System]]:
        """Each repeat has each workload once, each workload each system in turn."""
        for repeat in range(self.repeats):
            for workload in self.workloads:
                taking_part = [system for system in self.systems if system.takes_part(workload)]
                for system in in_turn(taking_part, repeat):
                    yield repeat, workload, system


def in_turn(systems: Sequence[System], repeat: int) -> list[System]:
    """Backwards every other time, and with another first each time, so that none always runs after the same one."""
    if not systems:
        return []
    shift = (repeat + 1) // 2 % len(systems)
    turned = [*systems[shift:], *systems[:shift]]
    return turned[::-1] if repeat % 2 else turned


def carry_out(
    plan: Plan, lab: Lab, server: Server, redis: Redis | None, keep: Callable[[Record], None], run: str
) -> None:
    """Measure, and hand over each record as it is made."""
    failures: Counter[tuple[str, str]] = Counter()
    try:
        for repeat, workload, system in plan.turns():
            if failures[system.name, workload] >= MOST_FAILURES:
                continue
            figures = measure(Stage(system, lab, server, redis), workload, plan.scale)
            failures[system.name, workload] += not figures["ok"]
            keep(
                {
                    "kind": "measurement",
                    "run": run,
                    "at": datetime.now(UTC).isoformat(timespec="seconds"),
                    "system": system.name,
                    "workload": workload,
                    "repeat": repeat,
                    **figures,
                }
            )
    finally:
        server.drop_templates()
        shutil.rmtree(lab.run_dir, ignore_errors=True)

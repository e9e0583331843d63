"""What a system is: where it is installed, how it is called, and how to see what it has done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from tasklib.bench import workloads as bench

WORKLOADS = tuple(id_ for id_ in bench.WORKLOADS if id_ not in ("W9", "W11", "W12"))
"""Those of `tasklib bench` that every system can run. W9, CPU seconds per 10,000 tasks, is read off W3."""


class Role(Enum):
    """What a system is compared as."""

    OURS = "ours"
    PEER = "peer"
    YARDSTICK = "yardstick"


@dataclass(frozen=True)
class System:
    """One entry of the comparison."""

    name: str
    """How it is called in results and on the command line."""

    environment: str
    """The directory in the lab that holds its packages."""

    distribution: str
    """The package whose version is recorded."""

    adapter: str
    """A file in adapters/."""

    role: Role = Role.PEER

    workloads: frozenset[str] = frozenset(WORKLOADS)
    """What it takes part in."""

    broker: Literal["postgresql", "redis"] = "postgresql"

    language: Literal["python", "node"] = "python"

    options: Mapping[str, Any] = field(default_factory=dict)
    """Its best settings as far as documented and found; given to the adapter and recorded."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    """How many tasks a workload takes, for the slow to end and the fast to last; "drain" stands for all drains."""

    slots: int = 100
    """How many tasks one worker runs at a time: as many naps keep it busy in W10."""

    unfinished: tuple[str, ...] = ()
    """What is left to do, as tails of a SELECT: `table WHERE ...`, such that the system's own indexes answer them.
    Without any, the bodies' count decides alone."""

    finished: str | None = None
    """What is done, likewise; None where no trace is kept."""

    unfinished_keys: tuple[str, ...] = ()
    """The same for Redis: commands whose answers add up."""

    prefill: tuple[str, ...] = ()
    """W7: statements that put {finished} finished and {future} future rows where the system keeps them, the future
    ones at its highest priority."""

    def size(self, workload: str) -> int:
        if workload in self.sizes:
            return self.sizes[workload]
        if workload in ("W1", "W10"):
            return 5000
        return self.sizes["drain"]

    def takes_part(self, workload: str) -> bool:
        return workload in self.workloads

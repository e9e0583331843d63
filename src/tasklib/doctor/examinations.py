"""All examinations, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor import (
    autovacuum,
    bloat,
    clock,
    fleet,
    indexes,
    leases,
    plan,
    retention,
    revision,
    server,
    snapshots,
    waiting,
    way,
)
from tasklib.doctor.findings import Finding


@dataclass(frozen=True, slots=True)
class Examination:
    """One look at one thing."""

    name: str
    look: Callable[[Config], Call[list[Finding]]]
    needs_tables: bool = True
    opens_connections: bool = False
    """It needs sessions of its own, and takes longer."""


EXAMINATIONS = (
    Examination("schema revision", revision.look, needs_tables=False),
    Examination("pooler", way.pooler, needs_tables=False, opens_connections=True),
    Examination("notifications", way.listening, needs_tables=False, opens_connections=True),
    Examination("workers", fleet.look),
    Examination("leases", leases.look),
    Examination("tasks nobody serves", waiting.unserved),
    Examination("pauses", waiting.paused),
    Examination("lanes", waiting.lanes),
    Examination("indexes", indexes.look),
    Examination("plan of the claim", plan.look),
    Examination("old snapshots", snapshots.look, needs_tables=False),
    Examination("dead rows", bloat.look),
    Examination("autovacuum", autovacuum.look),
    Examination("retention", retention.look),
    Examination("durability", server.durability, needs_tables=False),
    Examination("connections", server.connections, needs_tables=False),
    Examination("transaction ids", server.wraparound, needs_tables=False),
    Examination("clocks", clock.look, needs_tables=False),
)

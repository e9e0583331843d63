"""All checks, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor import (
    autovacuum,
    bloat,
    breakers,
    clock,
    connectivity,
    fleet,
    indexes,
    leases,
    limits,
    plan,
    retention,
    revision,
    schedules,
    server,
    snapshots,
    waiting,
)
from tasklib.doctor.findings import Finding


@dataclass(frozen=True, slots=True)
class Check:
    """One look at one thing."""

    name: str
    look: Callable[[Config], Call[list[Finding]]]
    needs_tables: bool = True
    opens_connections: bool = False
    """It needs sessions of its own, and takes longer."""


CHECKS = (
    Check("schema revision", revision.look, needs_tables=False),
    Check("pooler", connectivity.pooler, needs_tables=False, opens_connections=True),
    Check("notifications", connectivity.listening, needs_tables=False, opens_connections=True),
    Check("workers", fleet.look),
    Check("leases", leases.look),
    Check("tasks without a worker", waiting.unserved),
    Check("schedules", schedules.look),
    Check("pauses", waiting.paused),
    Check("circuit breakers", breakers.look),
    Check("limits", limits.look),
    Check("lanes", waiting.lanes),
    Check("indexes", indexes.look),
    Check("plan of the claim", plan.look),
    Check("old snapshots", snapshots.look, needs_tables=False),
    Check("dead rows", bloat.look),
    Check("autovacuum", autovacuum.look),
    Check("retention", retention.look),
    Check("durability", server.durability, needs_tables=False),
    Check("connections", server.connections, needs_tables=False),
    Check("transaction ids", server.wraparound, needs_tables=False),
    Check("clocks", clock.look, needs_tables=False),
)

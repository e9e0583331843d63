"""Leasing tasks: the claim, and when the next one is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from tasklib.db.query import Query, Rows


@dataclass(frozen=True, slots=True)
class Served:
    """What a worker takes: queues (None: all), the names it knows, and what it is capable of."""

    names: Sequence[str]
    queues: Sequence[str] | None = None
    capabilities: Sequence[str] = ()

    def parameters(self) -> dict[str, object]:
        return {
            "queues": list(self.queues) if self.queues is not None else None,
            "names": list(self.names),
            "capabilities": list(self.capabilities),
        }


class Claimed(NamedTuple):
    """A leased task, as the worker needs it. Ids and JSON stay text until somebody wants more."""

    id: str
    name: str
    kwargs: str
    token: int
    retry_count: int
    max_retries: int
    timeout_seconds: int | None
    crash_count: int
    priority: int
    effective_priority: int
    queue: str
    trace_context: str | None
    due: datetime


def claim(
    served: Served, limit: int, worker_id: str, *, lease_seconds: float, medium_after: float, high_after: float
) -> Query[list[Claimed]]:
    """Lease up to `limit` due tasks, best first."""
    parameters = {
        **served.parameters(),
        "limit": limit,
        "worker": worker_id,
        "lease": float(lease_seconds),
        "medium_after": float(medium_after),
        "high_after": float(high_after),
    }
    return Query("claim", parameters, _in_order, prepare=True)


def next_due(served: Served) -> Query[float | None]:
    """Seconds until the next task for this worker is due; None if there is none."""
    return Query("next_due", served.parameters(), lambda rows: rows[0][0], prepare=True)


def _in_order(rows: Rows) -> list[Claimed]:
    # UPDATE ... RETURNING promises no order.
    claimed = [Claimed._make(row) for row in rows]
    claimed.sort(key=lambda c: (-c.effective_priority, c.due, c.id))
    return claimed

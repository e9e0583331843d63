"""Backpressure: bounds on what may wait in a queue. Submissions to a queue that is over one of them are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tasklib.db.query import Query
from tasklib.store.audit import Action, audited

_MOST_LANES = 1000


@dataclass(frozen=True, slots=True)
class QueueBound:
    """What may wait in a queue; None: no bound."""

    queue: str
    max_wait: float | None
    """How long the oldest due task may have waited, in seconds."""
    max_pending: int | None
    """How many due tasks may wait, as the leader counted them last."""
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class Pressure:
    """A queue with bounds, and what waits in it."""

    queue: str
    max_wait: float | None
    max_pending: int | None
    oldest_age: float | None
    """How long the oldest due task has waited; None if none waits."""
    pending: int | None
    """How many due tasks waited when the leader counted last; None if it hasn't counted this queue."""


def bound(queue: str, max_wait: float | None, max_pending: int | None, *, by: str) -> Query[bool]:
    """Set the bounds of a queue, in place of those it has; reads whether they were others."""
    bounds = {"max_wait": max_wait, "max_pending": max_pending}
    return audited(
        "backpressure_set",
        {"queue": queue, **bounds},
        bool,
        by=by,
        action=Action.BOUND_QUEUE,
        target=f"queue:{queue}",
        details=bounds,
    )


def unbound(queue: str, *, by: str) -> Query[bool]:
    """Reads whether the queue had bounds."""
    return audited(
        "backpressure_clear", {"queue": queue}, bool, by=by, action=Action.UNBOUND_QUEUE, target=f"queue:{queue}"
    )


def bounds() -> Query[list[QueueBound]]:
    return Query("backpressure_list", {}, lambda rows: [QueueBound(*row) for row in rows], repeatable=True)


def look(queues: Sequence[str]) -> Query[list[Pressure]]:
    """Of these queues, those that have bounds."""
    parameters = {"queues": list(queues), "most_lanes": _MOST_LANES}
    return Query("backpressure_look", parameters, lambda rows: [Pressure(*row) for row in rows], repeatable=True)

"""Backpressure: bounds on what may wait in a queue or of a name. Submissions beyond one of them are refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tasklib.db.query import Query, Rows
from tasklib.store.audit import Action, audited


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
class NameBound:
    """What may wait of a task name; None: no bound. Both as the leader counted last."""

    name: str
    max_wait: float | None
    max_pending: int | None
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class Pressure:
    """A queue or name with bounds, and what waits."""

    subject: str
    """`queue:mail`, `name:send_email`."""
    max_wait: float | None
    max_pending: int | None
    oldest_age: float | None
    """How long the oldest due task has waited; None if none waits."""
    pending: int | None
    """How many due tasks waited when the leader counted last; None if it hasn't counted this queue."""


def bound(subject: str, max_wait: float | None, max_pending: int | None, *, by: str) -> Query[bool]:
    """Set the bounds of a queue or name, in place of those it has; reads whether they were others."""
    bounds = {"max_wait": max_wait, "max_pending": max_pending}
    return audited(
        "backpressure_set",
        {"subject": subject, **bounds},
        bool,
        by=by,
        action=Action.BOUND_QUEUE,
        target=subject,
        details=bounds,
    )


def unbound(subject: str, *, by: str) -> Query[bool]:
    """Reads whether the queue or name had bounds."""
    return audited("backpressure_clear", {"subject": subject}, bool, by=by, action=Action.UNBOUND_QUEUE, target=subject)


def queue_bounds() -> Query[list[QueueBound]]:
    return Query(
        "backpressure_list", {}, lambda rows: [QueueBound(*row) for row in _of("queue", rows)], repeatable=True
    )


def name_bounds() -> Query[list[NameBound]]:
    return Query("backpressure_list", {}, lambda rows: [NameBound(*row) for row in _of("name", rows)], repeatable=True)


def look(subjects: Sequence[str]) -> Query[list[Pressure]]:
    """Of these queues and names, those that have bounds."""
    parameters = {"subjects": list(subjects)}
    return Query("backpressure_look", parameters, lambda rows: [Pressure(*row) for row in rows], repeatable=True)


def _of(kind: str, rows: Rows) -> Iterator[tuple[Any, ...]]:
    """The rows about queues, or those about names."""
    for subject, *bounds in rows:
        if subject.startswith(f"{kind}:"):
            yield subject.partition(":")[2], *bounds

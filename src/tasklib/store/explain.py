"""Reading what keeps a task from running, and where it stands in line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from tasklib.db.query import Query, Rows

COUNT_UP_TO = 10_000
"""Counting the tasks ahead of one ends here."""

_SAMPLE = 500
"""How many rows are looked through, twice, for tasks that ended lately."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A task as `explain` needs it, with the pauses that concern it. `now` is the database's clock."""

    id: UUID
    name: str
    queue: str
    state: str
    required_capabilities: list[str]
    priority: int
    effective_priority: int
    due: datetime
    now: datetime
    retry_count: int
    crash_count: int
    max_retries: int
    last_ended: str | None
    """The number of the last attempt that failed or was lost, as its history has it."""
    error: str | None
    result: str | None
    """The beginning of its JSON."""
    started_at: datetime | None
    completed_at: datetime | None
    worker_id: str | None
    locked_until: datetime | None
    timeout_seconds: int | None
    cancel_requested_at: datetime | None
    progress: Any
    awaited_signals: list[str] | None
    """Of a durable task: the signals it was suspended for."""
    steps: int
    """How many steps it has on record."""
    queue_paused_at: datetime | None
    name_paused_at: datetime | None
    gate: Mapping[str, Any] | None
    """The gate it waits at, and how far that is."""
    breaker: Mapping[str, Any] | None
    """The breaker of its name, unless that is closed."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a due task stands in line: the due tasks of its own queue that a worker who could take it takes first.

    These are the tasks of higher effective priority, and those of the same that were due earlier; of names and
    capabilities that no worker fit for this task serves, and of paused names, none. While no live worker fits, all
    tasks of the queue count.
    """

    ahead: int
    is_capped: bool
    """True: the number is a lower bound; counting stopped there."""
    workers: int
    """Live workers that could take it."""
    slots: int
    """How many tasks these run at a time."""
    average_seconds: float | None
    """How long the tasks of this queue that ended lately took; None if none did."""

    @property
    def number(self) -> int:
        """1 for the next task."""
        return self.ahead + 1

    @property
    def eta_seconds(self) -> float | None:
        """About when it begins, if its workers do nothing else and the tasks ahead take as long as those before them.

        None if that is unknown: no live worker can run it, or no task of this queue ended within the last hour. If
        `is_capped`, it takes longer.
        """
        if not self.slots or self.average_seconds is None:
            return None
        return self.number * self.average_seconds / self.slots


def situation(
    task_id: UUID, *, medium_after: float, high_after: float, owner: str | None = None
) -> Query[Situation | None]:
    parameters = {
        "id": str(task_id),
        "owner": owner,
        "medium_after": float(medium_after),
        "high_after": float(high_after),
    }
    return Query("explain", parameters, lambda rows: Situation(*rows[0]) if rows else None, repeatable=True)


def position(
    task_id: UUID, *, medium_after: float, high_after: float, owner: str | None = None
) -> Query[Position | None]:
    """Where a task stands in line; reads None if it isn't in one: not due, paused, running, finished, unknown."""
    parameters = {
        "id": str(task_id),
        "owner": owner,
        "medium_after": float(medium_after),
        "high_after": float(high_after),
        "most": COUNT_UP_TO,
        "sample": _SAMPLE,
    }
    return Query("position", parameters, _position, repeatable=True)


def _position(rows: Rows) -> Position | None:
    if not rows:
        return None
    ahead, workers, slots, average = rows[0]
    return Position(ahead, ahead >= COUNT_UP_TO, workers, slots, average)

"""How high a task stands after waiting: the arithmetic of `tasklib_effective_priority` in SQL, once more in Python."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tasklib.states import CLAIMABLE

if TYPE_CHECKING:
    from tasklib.models import Task

MEDIUM, HIGH = 0, 100
MEDIUM_AFTER_SECONDS, HIGH_AFTER_SECONDS = 600.0, 1200.0


def effective_priority(
    task: Task,
    moment: datetime | None = None,
    *,
    promote_to_medium_after_seconds: float = MEDIUM_AFTER_SECONDS,
    promote_to_high_after_seconds: float = HIGH_AFTER_SECONDS,
) -> int:
    """The priority by which a task is claimed, now or at a moment: low counts as medium in time, then any as high.

    The thresholds are the default ones; `client.settings()` has those in force. A task that doesn't wait has its own
    priority.
    """
    if task.state not in CLAIMABLE:
        return task.priority
    due = task.next_retry_at or task.scheduled_at
    if due is None:  # never stored: it has no due time
        return task.priority
    return raised(
        task.priority, due, moment or datetime.now(UTC), promote_to_medium_after_seconds, promote_to_high_after_seconds
    )


def raised(priority: int, due: datetime, moment: datetime, medium_after: float, high_after: float) -> int:
    """How high this priority stands at a moment, if it has waited since `due`."""
    if due <= moment - timedelta(seconds=high_after + (medium_after if priority < MEDIUM else 0)):
        return max(priority, HIGH)
    if due <= moment - timedelta(seconds=medium_after):
        return max(priority, MEDIUM)
    return priority

"""How much waits. Reading it costs the same whatever the table holds."""

from __future__ import annotations

from dataclasses import dataclass

from tasklib.db.query import Query

COUNT_UP_TO = 2000
"""Counting one queue's due tasks of one level ends here."""
MOST_LANES = 5000
"""How many lanes are read."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The due tasks of one queue and level."""

    queue: str
    level: str
    """By the task's own priority: high from 100 on, medium from 0 on, low below."""
    depth: int
    is_capped: bool
    """True: the number is a lower bound; counting stopped there."""
    oldest_age_seconds: float
    """How long the one that is due the longest has waited."""


def backlog(most: int = COUNT_UP_TO, most_lanes: int = MOST_LANES) -> Query[list[Backlog]]:
    """By queue and level; those with nothing due are not in it."""
    parameters = {"most": most, "most_lanes": most_lanes}
    return Query("backlog", parameters, lambda rows: [Backlog(*row) for row in rows], repeatable=True)


def running() -> Query[int]:
    """How many tasks run now."""
    return Query("running_count", {}, lambda rows: int(rows[0][0]), repeatable=True)

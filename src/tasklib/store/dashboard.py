"""What the dashboard shows beside stats and depths. Each query reads a bounded number of rows, whatever there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tasklib.db.query import Query

_SAMPLE = 1000
"""How many of the latest tasks are looked through."""
_MOST_RUNNING = 2000
_MOST_LANES = 1000
COUNT_UP_TO = 2000
"""Counting one lane's waiting tasks ends here, or earlier where there are many lanes."""


@dataclass(frozen=True, slots=True)
class RecentFailure:
    """A task that failed lately."""

    id: UUID
    name: str
    queue: str
    state: str
    error: str | None
    """The last line."""
    at: datetime | None
    fingerprint: str
    """Of its cause: its name and, but for ids and numbers, its error."""


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt that goes on."""

    id: UUID
    name: str
    queue: str
    worker: str
    started_at: datetime
    token: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended that was seen to run; both None if neither its row nor its history says."""

    id: UUID
    token: int
    state: str | None
    at: datetime | None


@dataclass(frozen=True, slots=True)
class RecentAttempt:
    """An attempt that has ended, as a task's row or history has it."""

    id: UUID
    token: int
    name: str
    worker: str
    started_at: datetime
    ended_at: datetime
    state: str
    """completed, cancelled, or failed."""


@dataclass(frozen=True, slots=True)
class NameBacklog:
    """What waits under a name at a level."""

    name: str
    level: str
    depth: int
    is_capped: bool
    """True: the number is a lower bound; counting stopped there."""
    oldest_age_seconds: float


def recent_failures(limit: int) -> Query[list[RecentFailure]]:
    """The latest first: dead letters, and those of the latest tasks that wait for a retry."""
    parameters = {"limit": limit, "sample": _SAMPLE}
    return Query("recent_failures", parameters, lambda rows: [RecentFailure(*row) for row in rows], repeatable=True)


def running(workers: Sequence[str]) -> Query[list[RunningAttempt]]:
    """What runs on these workers now, of a very large fleet a part."""
    parameters = {"workers": list(workers), "look": _MOST_RUNNING}
    return Query("running", parameters, lambda rows: [RunningAttempt(*row) for row in rows], repeatable=True)


def ended(attempts: Sequence[tuple[UUID, int]]) -> Query[list[Ended]]:
    """What became of attempts, by id and token; those that still run are left out."""
    parameters = {"ids": [str(id_) for id_, _ in attempts], "tokens": [token for _, token in attempts]}
    return Query("ended", parameters, lambda rows: [Ended(*row) for row in rows], repeatable=True)


def recent_attempts(seconds: float, limit: int = 1000) -> Query[list[RecentAttempt]]:
    """Attempts of the latest tasks that ended in the last seconds, the latest first."""
    parameters = {"seconds": float(seconds), "sample": _SAMPLE, "limit": limit}
    return Query("recent_attempts", parameters, lambda rows: [RecentAttempt(*row) for row in rows], repeatable=True)


def backlog_by_name() -> Query[list[NameBacklog]]:
    """What waits, by name and level; names with nothing due are not in it."""
    parameters = {"most": COUNT_UP_TO, "most_in_all": 2 * COUNT_UP_TO, "most_lanes": _MOST_LANES}
    return Query("backlog_by_name", parameters, lambda rows: [NameBacklog(*row) for row in rows], repeatable=True)


def written() -> Query[str | None]:
    """A text that changes when rows are written, but for heartbeats; None if PostgreSQL doesn't count that."""
    return Query("written", {}, lambda rows: rows[0][0], repeatable=True)


def declared_limits(name: str) -> Query[list[str]]:
    """The limits that a task function is declared with."""
    return Query("declared_limits", {"name": name}, lambda rows: [row[0] for row in rows], repeatable=True)

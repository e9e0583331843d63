"""Cancelling and replaying."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from tasklib.db.query import Query, Rows
from tasklib.store.settle import Leased, arrays

CANCEL = "cancel"
"""The message on the channel that says: look for cancel requests."""


@dataclass(frozen=True)
class Unwanted:
    """Which tasks to cancel; None means any. `tags` is JSON text."""

    states: list[str]
    name: str | None = None
    queue: str | None = None
    tags: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def not_after(self, moment: datetime) -> Unwanted:
        """The same without what is created later than this."""
        return replace(self, created_before=min(self.created_before or moment, moment))


class Look(NamedTuple):
    """How many tasks a cancel would take, by the database's clock now."""

    moment: datetime
    waiting: int
    running: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancel did: tasks that waited are cancelled, the workers of those that run are asked to stop them."""

    cancelled: int = 0
    asked: int = 0


def cancel(task_id: UUID) -> Query[str | None]:
    """Cancel what waits, ask what runs; reads the new state, or None if the task is finished or unknown."""
    return Query("cancel", {"id": str(task_id), "message": CANCEL}, _state)


def cancel_look(unwanted: Unwanted) -> Query[Look]:
    return Query("cancel_look", asdict(unwanted), lambda rows: Look(*rows[0]), prepare=False, repeatable=True)


def cancel_batch(unwanted: Unwanted, limit: int) -> Query[Cancelled]:
    """Cancel up to `limit` that wait and ask up to `limit` that run, but for those that somebody has locked."""
    parameters = {**asdict(unwanted), "limit": limit, "message": CANCEL}
    return Query("cancel_batch", parameters, _counts, prepare=False)


def cancel_rest(unwanted: Unwanted) -> Query[list[str]]:
    """The ids of those that are left."""
    return Query("cancel_rest", asdict(unwanted), lambda rows: [row[0] for row in rows], prepare=False, repeatable=True)


def cancel_requests(leases: Sequence[Leased]) -> Query[set[str]]:
    """Which of these running attempts have been asked to stop."""
    return Query("cancel_requests", arrays(leases), lambda rows: {row[0] for row in rows})


def replay(task_id: UUID) -> Query[str | None]:
    """Start a finished task anew; reads its new state, or None if it is not finished or unknown."""
    return Query("replay", {"id": str(task_id), "message": ""}, _state)


def _state(rows: Rows) -> str | None:
    return rows[0][0] if rows else None


def _counts(rows: Rows) -> Cancelled:
    running = sum(row[0] == "running" for row in rows)
    return Cancelled(len(rows) - running, running)

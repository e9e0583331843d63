"""Cancelling and replaying."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tasklib.db.query import Query, Rows
from tasklib.store.settle import Lease

CANCEL = "cancel"
"""The message on the channel that says: look for cancel requests."""


def cancel(task_id: UUID) -> Query[str | None]:
    """Cancel what waits, ask what runs; reads the new state, or None if the task is finished or unknown."""
    return Query("cancel", {"id": str(task_id), "message": CANCEL}, _state)


def cancel_requests(leases: Sequence[Lease]) -> Query[set[str]]:
    """Which of these running attempts have been asked to stop."""
    ids, tokens = [lease.id for lease in leases], [lease.token for lease in leases]
    return Query("cancel_requests", {"ids": ids, "tokens": tokens}, lambda rows: {row[0] for row in rows})


def replay(task_id: UUID) -> Query[str | None]:
    """Start a finished task anew; reads its new state, or None if it is not finished or unknown."""
    return Query("replay", {"id": str(task_id), "message": ""}, _state)


def _state(rows: Rows) -> str | None:
    return rows[0][0] if rows else None

"""Cancelling, replaying and editing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from tasklib.db.query import Query, Rows
from tasklib.store.audit import Action, audited
from tasklib.store.filters import TaskFilter
from tasklib.store.settle import Lease, Leased, arrays

CANCEL = "cancel"
"""The payload of a notification about a cancel request."""


class CancelPreview(NamedTuple):
    """How many tasks a cancel would take, by the database's clock now."""

    moment: datetime
    waiting: int
    running: int


@dataclass(frozen=True, slots=True)
class CancelCounts:
    """What a cancel did: tasks that waited are cancelled, the workers of those that run are asked to stop them."""

    cancelled: int = 0
    asked: int = 0


def cancel(task_id: UUID, *, by: str, owner: str | None = None) -> Query[str | None]:
    """Cancel what waits, ask what runs; reads the new state, or None if there was nothing to change.

    That is: the task is finished or unknown, was asked before, or is not the owner's.
    """
    parameters = {"id": str(task_id), "owner": owner, "message": CANCEL}
    return audited("cancel", parameters, _state, by=by, action=Action.CANCEL_TASK, target=str(task_id))


def cancel_look(chosen: TaskFilter) -> Query[CancelPreview]:
    return Query(
        "cancel_look", chosen.parameters(), lambda rows: CancelPreview(*rows[0]), prepare=False, repeatable=True
    )


def cancel_batch(chosen: TaskFilter, limit: int, *, by: str, sought: str | None = None) -> Query[CancelCounts]:
    """Cancel up to `limit` waiting tasks and request up to `limit` running ones to stop, except locked rows.

    `sought` says in the audit how the ids were found, instead of naming them.
    """
    conditions = chosen.parameters()
    parameters = {**conditions, "limit": limit, "message": CANCEL}
    ids = None if sought else conditions["ids"]
    details = {**conditions, "tags": chosen.tags, "ids": ids, "search": sought}
    return audited(
        "cancel_batch", parameters, _counts, by=by, action=Action.CANCEL_TASKS, details=details, prepare=False
    )


def cancel_rest(chosen: TaskFilter) -> Query[list[str]]:
    """The ids of those that are left."""
    parameters = chosen.parameters()
    return Query("cancel_rest", parameters, lambda rows: [row[0] for row in rows], prepare=False, repeatable=True)


def cancel_requests(leases: Sequence[Leased]) -> Query[set[str]]:
    """Which of these running attempts have been asked to stop."""
    return Query("cancel_requests", arrays(leases), lambda rows: {row[0] for row in rows})


def cancel_requests_of(worker_id: str) -> Query[list[Lease]]:
    """Which attempts of one worker have been asked to stop."""
    return Query("cancel_requests_of", {"worker": worker_id}, lambda rows: [Lease(*row) for row in rows])


def replay(task_id: UUID, *, by: str, owner: str | None = None) -> Query[str | None]:
    """Start a finished task anew; reads its new state, or None if it is not finished, unknown or not the owner's."""
    parameters = {"id": str(task_id), "owner": owner}
    return audited("replay", parameters, _state, by=by, action=Action.REPLAY_TASK, target=str(task_id))


def run_now(task_id: UUID, *, by: str, owner: str | None = None) -> Query[str | None]:
    """Make a task due that waits for its time; reads its state, or None: it doesn't, is unknown or not the owner's."""
    parameters = {"id": str(task_id), "owner": owner}
    return audited("run_now", parameters, _state, by=by, action=Action.RUN_TASK_NOW, target=str(task_id))


class EditLook(NamedTuple):
    """What an edit has to know of a task besides its columns."""

    version: str
    """It changes with every claim, and with every change of the columns that can be edited."""
    has_steps: bool
    """A durable function that began."""
    holds_place: bool
    """A failed task of a serial line that waits for it."""


@dataclass(frozen=True, slots=True)
class TaskEdit:
    """What changes of a task, as it is stored; None: nothing."""

    kwargs: str | None = None
    queue: str | None = None
    priority: int | None = None
    max_retries: int | None = None
    timeout_seconds: int | None = None
    tags: str | None = None
    required_capabilities: list[str] | None = None
    delay_seconds: float | None = None
    scheduled_at: datetime | None = None

    def given(self) -> dict[str, Any]:
        """Only what changes."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __bool__(self) -> bool:
        return bool(self.given())


def edit_look(task_id: UUID, *, owner: str | None = None) -> Query[EditLook | None]:
    """Look at a task before it is edited; reads None if it is unknown or not the owner's."""
    parameters = {"id": str(task_id), "owner": owner}
    return Query("edit_look", parameters, lambda rows: EditLook(*rows[0]) if rows else None, repeatable=True)


def edit(
    task_id: UUID, edit: TaskEdit, version: str, details: Mapping[str, Any], *, by: str, owner: str | None = None
) -> Query[str | None]:
    """Change a task that waits, if it is still of this version; reads its state, or None."""
    moment = None if edit.scheduled_at is None else edit.scheduled_at.isoformat()
    parameters = {**asdict(edit), "scheduled_at": moment, "id": str(task_id), "version": version, "owner": owner}
    return audited(
        "edit", parameters, _state, by=by, action=Action.EDIT_TASK, target=str(task_id), details=details, prepare=False
    )


def _state(rows: Rows) -> str | None:
    return rows[0][0] if rows else None


def _counts(rows: Rows) -> CancelCounts:
    running = sum(row[0] == "running" for row in rows)
    return CancelCounts(len(rows) - running, running)

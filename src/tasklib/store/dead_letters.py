"""Dead letters: which ones, by what cause, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

from tasklib.db.query import Query, Rows
from tasklib.store.audit import Action, audited
from tasklib.store.filters import DeadLetterFilter
from tasklib.store.lookup import tasks_of
from tasklib.store.search import FoundTask

if TYPE_CHECKING:
    from tasklib.models import Task

T = TypeVar("T")

_MOST_IDS = 100
"""How many ids a record of the audit names; `count` says how many there were."""


class DeadLetterPlace(NamedTuple):
    """Where a page or a batch ended."""

    completed_at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Dead letters with the same name and, but for ids and numbers, the same error."""

    fingerprint: str
    name: str
    count: int
    first_seen: datetime
    last_seen: datetime
    sample_id: UUID
    error: str
    """The last line of the sample's error."""


class DeadLetterBatch(NamedTuple):
    """What one statement took, and where it ended."""

    ids: list[UUID]
    last: DeadLetterPlace | None


def page(chosen: DeadLetterFilter, after: DeadLetterPlace | None, limit: int) -> Query[list[Task]]:
    """The latest first."""
    parameters = {**_parameters(chosen, after, limit), "most": None}
    return Query("dead_letters", parameters, tasks_of, prepare=False, repeatable=True)


def groups(chosen: DeadLetterFilter, limit: int) -> Query[list[DeadLetterGroup]]:
    """By cause, the most frequent first."""
    return _by_cause(chosen, limit, None, _groups)


def latest_groups(chosen: DeadLetterFilter, limit: int, look: int) -> Query[tuple[list[DeadLetterGroup], int]]:
    """The same of the latest dead letters, `look` at most; and how many these were."""
    return _by_cause(chosen, limit, look, lambda rows: (_groups(rows), rows[0][7] if rows else 0))


def alike(
    chosen: DeadLetterFilter, after: DeadLetterPlace | None, limit: int, look: int
) -> Query[tuple[list[FoundTask], DeadLetterPlace | None]]:
    """One page of the chosen ones among the next `look` dead letters; and where looking ended before it was full."""
    parameters = {**_parameters(chosen, after, limit), "look": look}
    return Query("dead_letters_alike", parameters, _alike, prepare=False, repeatable=True)


def look(chosen: DeadLetterFilter, limit: int | None, *, of_flows: bool) -> Query[DeadLetterBatch]:
    """What a replay, or a purge, which leaves those of flows, would take, the oldest first."""
    parameters = {**chosen.parameters(), "limit": limit, "of_flows": of_flows}
    return Query("dead_letter_look", parameters, _batch, prepare=False, repeatable=True)


def replay(chosen: DeadLetterFilter, after: DeadLetterPlace | None, limit: int, *, by: str) -> Query[DeadLetterBatch]:
    """Start the next ones afresh."""
    parameters = {**_parameters(chosen, after, limit), "of_flows": True, "message": ""}
    return _recorded("replay_dead_letters", parameters, chosen, by, Action.REPLAY_DEAD_LETTERS)


def purge(chosen: DeadLetterFilter, after: DeadLetterPlace | None, limit: int, *, by: str) -> Query[DeadLetterBatch]:
    """Delete the next ones; a flow is deleted as a whole, after its time."""
    parameters = {**_parameters(chosen, after, limit), "of_flows": False}
    return _recorded("purge_dead_letters", parameters, chosen, by, Action.PURGE_DEAD_LETTERS)


def now() -> Query[datetime]:
    """The database's clock."""
    return Query("now", {}, _moment, repeatable=True)


def _by_cause(chosen: DeadLetterFilter, limit: int, look: int | None, read: Callable[[Rows], T]) -> Query[T]:
    parameters = {**chosen.parameters(), "limit": limit, "look": look}
    return Query("dead_letter_groups", parameters, read, prepare=False, repeatable=True)


def _alike(rows: Rows) -> tuple[list[FoundTask], DeadLetterPlace | None]:
    moment, task_id = rows[0][:2]
    ended = DeadLetterPlace(moment, task_id) if task_id else None
    return [FoundTask(*row[2:]) for row in rows if row[2] is not None], ended


def _parameters(chosen: DeadLetterFilter, after: DeadLetterPlace | None, limit: int) -> dict[str, Any]:
    return {
        **chosen.parameters(),
        "after_time": after.completed_at if after else None,
        "after_id": after.id if after else None,
        "limit": limit,
    }


def _recorded(
    statement: str, parameters: dict[str, Any], chosen: DeadLetterFilter, by: str, action: Action
) -> Query[DeadLetterBatch]:
    details = chosen.parameters()
    if details["ids"] is not None:
        details["ids"] = details["ids"][:_MOST_IDS]
    return audited(statement, parameters, _batch, by=by, action=action, details=details, prepare=False)


def _batch(rows: Rows) -> DeadLetterBatch:
    places = sorted(DeadLetterPlace(row[1], row[0]) for row in rows)
    return DeadLetterBatch([UUID(p.id) for p in places], places[-1] if places else None)


def _groups(rows: Rows) -> list[DeadLetterGroup]:
    return [
        DeadLetterGroup(fingerprint, name, count, first_seen, last_seen, UUID(sample), error or "")
        for fingerprint, name, count, first_seen, last_seen, sample, error, _ in rows
    ]


def _moment(rows: Rows) -> datetime:
    moment: datetime = rows[0][0]
    return moment


def fingerprint(task_id: UUID) -> Query[str | None]:
    """The fingerprint of a task's name and error; None without an error."""
    return Query("fingerprint", {"id": str(task_id)}, lambda rows: rows[0][0] if rows else None, repeatable=True)

"""Reading tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from tasklib.columns import TASK_COLUMNS, returned
from tasklib.db.query import Query, Rows
from tasklib.store.filters import TaskFilter

if TYPE_CHECKING:
    from tasklib.models import Task

_WAITING = frozenset({"pending", "failed"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of a task, for a caller that waits for it."""

    name: str
    state: str
    result: Any
    """What the function returned, as JSON has it; None before it completed."""
    error: str | None
    submitted_by: str | None = None


def get(task_id: UUID, *, owner: str | None = None) -> Query[Task | None]:
    """One task; reads None if there is none, or it is not the owner's."""
    return Query("get", {"id": str(task_id), "owner": owner}, _first_task, repeatable=True)


def outcome(task_id: UUID, *, owner: str | None = None) -> Query[Outcome | None]:
    """The same of what a waiting caller needs to know."""
    parameters = {"id": str(task_id), "owner": owner}
    return Query("outcome", parameters, _outcome, repeatable=True)


class Listed(NamedTuple):
    """A task without its large values."""

    task: Task
    left_out: list[str]
    """The columns whose values were too large to be read."""


def get_within(task_id: UUID, most: int, *, owner: str | None = None) -> Query[Listed | None]:
    """One task, without values of more than so many bytes."""
    parameters = {"id": str(task_id), "owner": owner, "most": most}
    return Query("get_within", parameters, lambda rows: _listed(rows)[0] if rows else None, repeatable=True)


def within(query: Query[list[Task]], most: int) -> Query[list[Listed]]:
    """A list of tasks, without values of more than so many bytes."""
    return Query(query.name, {**query.parameters, "most": most}, _listed, query.prepare, query.repeatable)


@dataclass(frozen=True, slots=True)
class WatchedState:
    """The state of a task, for a caller that receives each change."""

    state: str
    version: str


def watched(ids: Iterable[UUID]) -> Query[dict[UUID, WatchedState]]:
    """How these tasks stand; those that are gone are not in it. It doesn't ask whose they are."""
    return Query("watched", {"ids": [str(i) for i in ids]}, _standings, repeatable=True)


def list_(chosen: TaskFilter, after: UUID | None, limit: int) -> Query[list[Task]]:
    """One page, newest first."""
    conditions = chosen.parameters()
    parameters = {
        **conditions,
        "after": str(after) if after else None,
        "limit": limit,
        "most": None,
        "waiting": bool(conditions["states"]) and _WAITING.issuperset(conditions["states"]),
    }
    return Query("list", parameters, tasks_of, prepare=False, repeatable=True)


def tasks_of(rows: Rows) -> list[Task]:
    """Tasks from rows that begin with all their columns."""
    from tasklib.models import Task  # SQLModel takes half a second to import, and workers never need it

    tasks = [Task(**dict(zip(TASK_COLUMNS, row, strict=False))) for row in rows]
    for task in tasks:
        task.result = returned(task.result)
        if task.history is not None:
            # A row that was inserted with JSON's null for a history has it as an entry after its first failure.
            entries = task.history if isinstance(task.history, list) else []
            task.history = [entry for entry in entries if isinstance(entry, dict)]
    return tasks


def _listed(rows: Rows) -> list[Listed]:
    return [Listed(task, row[-1]) for task, row in zip(tasks_of(rows), rows, strict=True)]


def _outcome(rows: Rows) -> Outcome | None:
    if not rows:
        return None
    name, state, result, error, submitted_by = rows[0]
    return Outcome(name, state, returned(result), error, submitted_by)


def _standings(rows: Rows) -> dict[UUID, WatchedState]:
    return {UUID(id_): WatchedState(state, version) for id_, state, version in rows}


def _first_task(rows: Rows) -> Task | None:
    return tasks_of(rows)[0] if rows else None

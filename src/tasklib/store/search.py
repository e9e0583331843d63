"""Searching tasks: the conditions, as data, and the statements that apply them at a bounded cost.

There is no index for every possible search, because every task would pay for it. So a search reads a bounded
number of rows, in the order of an index that is there anyway, and says where it ended:

    newest      by id, which is by time: whatever is sought
    set_aside   failed, cancelled, dead_letter and running, from indexes that completed tasks are not in
    waiting     pending, from the claim's index: for those older than the newest
    in_flows    the tasks of certain flows, by their index
    with_ids    by the primary key
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from tasklib.db.query import Query, Rows
from tasklib.states import TaskState, attempts_begun
from tasklib.store.audit import Action, audited

SET_ASIDE = frozenset({TaskState.FAILED, TaskState.CANCELLED, TaskState.DEAD_LETTER, TaskState.RUNNING})
"""The states that are found by an index of their own."""

MOST_RUNNING = 20_000
"""No fleet runs more at a time; if it does, those whose leases end last are not seen."""

SKEW = timedelta(hours=1)
"""An id begins with the time of the clock that made it, which may differ from the database's by this much."""


_BOUNDED = ("created", "failed", "due", "duration")
"""What has a lower and an upper bound."""


class Tag(NamedTuple):
    """A key, and the values it may have; none: any."""

    key: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """The conditions of a search; empty or None means no condition. Texts are patterns for LIKE.

    Of several values of a field one has to fit; every tag and every word has to; of a `not_` field nothing may.
    """

    states: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()
    not_names: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    not_queues: tuple[str, ...] = ()
    tags: tuple[Tag, ...] = ()
    not_tags: tuple[Tag, ...] = ()
    arguments: tuple[Tag, ...] = ()
    """Names of arguments, with dots for what is inside."""
    not_arguments: tuple[Tag, ...] = ()
    workers: tuple[str, ...] = ()
    not_workers: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    not_schedules: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()
    not_flows: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    not_nodes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    not_errors: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    """Fingerprints of name and error."""
    not_causes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    """Idempotency keys and merge keys."""
    not_keys: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    """Ids of traces."""
    not_traces: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    not_ids: tuple[str, ...] = ()
    exact: tuple[UUID, ...] = ()
    """Whole ids."""
    priorities: tuple[tuple[int, int], ...] = ()
    """The lowest and the highest of each range."""
    not_priorities: tuple[tuple[int, int], ...] = ()
    created_from: datetime | None = None
    created_to: datetime | None = None
    failed_from: datetime | None = None
    """When the last attempt of a task failed that waits for a retry or was given up."""
    failed_to: datetime | None = None
    due_from: datetime | None = None
    """When a waiting task is due."""
    due_to: datetime | None = None
    duration_from: float | None = None
    """Seconds that the last attempt took, or has run."""
    duration_to: float | None = None
    words: tuple[str, ...] = ()
    """Pieces of the name or the id."""
    not_words: tuple[str, ...] = ()
    owner: str | None = None
    """Whose tasks they have to be."""
    secrets: str | None = None
    """What is masked in errors for the caller, who can't search it."""

    @property
    def is_by_state_alone(self) -> bool:
        """True if each task of the right state fits."""
        return replace(self, states=None, owner=None, secrets=None) == Search()

    @property
    def is_in_flows(self) -> bool:
        """True if it is about the tasks of certain flows."""
        return bool(self.flows) and "%" not in self.flows

    def parameters(self) -> dict[str, Any]:
        texts = (
            "names",
            "queues",
            "workers",
            "schedules",
            "flows",
            "nodes",
            "errors",
            "causes",
            "keys",
            "traces",
            "ids",
            "words",
        )
        lists = {name: list(getattr(self, name)) or None for base in texts for name in (base, f"not_{base}")}
        return {
            **lists,
            "states": None if self.states is None else list(self.states),
            "tags": _json(self.tags),
            "not_tags": _json(self.not_tags),
            "arguments": _json(self.arguments),
            "not_arguments": _json(self.not_arguments),
            "lowest": [low for low, _ in self.priorities] or None,
            "highest": [high for _, high in self.priorities] or None,
            "not_lowest": [low for low, _ in self.not_priorities] or None,
            "not_highest": [high for _, high in self.not_priorities] or None,
            **{f"{field}_{end}": getattr(self, f"{field}_{end}") for field in _BOUNDED for end in ("from", "to")},
            "owner": self.owner,
            "secrets": self.secrets,
        }


@dataclass(frozen=True, slots=True)
class FoundTask:
    """A task as a list shows it: without what may be large."""

    id: UUID
    state: str
    name: str
    queue: str
    priority: int
    retry_count: int
    max_retries: int
    created_at: datetime
    scheduled_at: datetime
    next_retry_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    worker_id: str | None
    cancel_requested_at: datetime | None
    error: str | None
    """The last line."""
    crash_count: int
    last_attempt: Any
    """The number of a dead letter's last attempt, as its history says; None in other states."""
    kwargs: dict[str, Any] | None
    """The arguments; None if they are long or sealed."""

    @property
    def attempts(self) -> int:
        """As of a Task."""
        return attempts_begun(self.state, self.retry_count, self.crash_count, self.last_attempt)


class Matches(NamedTuple):
    """What one statement found, the newest first."""

    tasks: list[FoundTask]
    ended_at: UUID | None
    """Looking ended at this task before there were enough; None: nothing is left, or the page is full."""


class Part(NamedTuple):
    """Which tasks to read: those older than one, newer than one, or the newest."""

    limit: int
    look: int
    older_than: UUID | None = None
    newer_than: UUID | None = None


@dataclass(frozen=True, slots=True)
class CappedCount:
    """How many tasks have a state."""

    count: int
    is_capped: bool
    """True: the number is a lower bound; counting stopped there."""


def newest(search: Search, part: Part) -> Query[Matches]:
    """Among the newest, or those next to a task: `look` of them at most."""
    return _query("search_newer" if part.newer_than else "search_newest", search, part)


def set_aside(search: Search, part: Part) -> Query[Matches]:
    """Among tasks of these states, all of them in SET_ASIDE."""
    return _query("search_aside_newer" if part.newer_than else "search_aside", search, part)


def in_flows(search: Search, part: Part) -> Query[Matches]:
    """Among the tasks of certain flows, `look` of them at most."""
    return _query("search_flows_newer" if part.newer_than else "search_flows", search, part)


def with_ids(search: Search, part: Part) -> Query[Matches]:
    """Among the tasks with the `exact` ids."""
    return _query("search_ids", search, part)


def waiting(search: Search, part: Part) -> Query[tuple[list[FoundTask], bool]]:
    """Among pending tasks of any age; True: there are more than `look`, and not all were read."""
    parameters = _parameters(search, part)
    return Query("search_waiting", parameters, lambda rows: (_tasks(rows), rows[0][0]), prepare=False, repeatable=True)


class HeldValues(NamedTuple):
    """Arguments or tags that an optional index finds: JSON that `kwargs` or `tags` has to contain, any of these."""

    field: Literal["args", "tags"]
    documents: tuple[str, ...]

    @property
    def index_name(self) -> str:
        return f"tasks_search_{self.field}"

    @property
    def statement(self) -> str:
        """What an operator may run, so that such searches find all tasks."""
        column = "kwargs" if self.field == "args" else "tags"
        return f"CREATE INDEX CONCURRENTLY {self.index_name} ON tasks USING gin ({column} jsonb_path_ops);"


def held_values(search: Search) -> HeldValues | None:
    """What an index could find of a search: one key with its values; None if it names none."""
    wanted: list[tuple[Literal["args", "tags"], Sequence[Tag]]] = [("args", search.arguments), ("tags", search.tags)]
    for field, tags in wanted:
        for tag in tags:
            path = tag.key.split(".") if field == "args" else [tag.key]
            # `lines.0.sku` may lead through a list or an object.
            if tag.values and all(path) and not any(part.isdigit() for part in path):
                return HeldValues(field, tuple(_document(path, v) for text in tag.values for v in _readings(text)))
    return None


def _readings(text: str) -> list[Any]:
    """A value as text, and as the number or the word of JSON that it may be."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    return [text, value] if isinstance(value, int | float | bool) else [text]


def _document(path: Sequence[str], value: Any) -> str:
    for key in reversed(path):
        value = {key: value}
    return json.dumps(value)


def has_index(held: HeldValues, schema: str | None) -> Query[bool]:
    """Whether there is an index for these values."""
    quoted = f'"{schema.replace(chr(34), chr(34) * 2)}".' if schema else ""
    return Query(
        "has_search_index", {"index": quoted + held.index_name}, lambda rows: bool(rows[0][0]), repeatable=True
    )


def indexed(search: Search, part: Part, held: HeldValues) -> Query[tuple[list[FoundTask], bool]]:
    """Among the tasks with these values; True: there are `look` of them or more, and not all were read."""
    parameters = {**_parameters(search, part), "holding": list(held.documents)}
    name = "search_indexed_args" if held.field == "args" else "search_indexed_tags"
    return Query(name, parameters, lambda rows: (_tasks(rows), rows[0][0]), prepare=False, repeatable=True)


def count_states(most: int) -> Query[dict[str, CappedCount]]:
    """The states but for completed, each counted up to `most`."""
    return Query("count_states", {"most": most}, _counts, prepare=False, repeatable=True)


Suggested: TypeAlias = Query[list[tuple[str, int]]]


def suggest(field: str, key: str, typed: str, look: int, limit: int, *, owner: str | None = None) -> Suggested:
    """Values of a field that contain what was typed, a pattern, and how many of the newest tasks have each."""
    parameters = {"field": field, "key": key, "pattern": f"%{typed}%", "beginning": f"{typed}%", "look": look}
    return Query(
        "suggest", {**parameters, "limit": limit, "owner": owner}, list[tuple[str, int]], prepare=False, repeatable=True
    )


def replay(ids: Sequence[UUID], sought: str, *, by: str, owner: str | None = None) -> Query[list[UUID]]:
    """Start these afresh, if they are finished; `sought` says in the audit how they were found."""
    parameters = {"ids": [str(i) for i in ids], "owner": owner, "message": ""}
    details = {"search": sought or None, "owner": owner, "ids": None if sought else parameters["ids"]}
    return audited(
        "replay_tasks",
        parameters,
        lambda rows: [UUID(row[0]) for row in rows],
        by=by,
        action=Action.REPLAY_TASKS,
        details=details,
        prepare=False,
    )


def _query(statement: str, search: Search, part: Part) -> Query[Matches]:
    return Query(statement, _parameters(search, part), _look, prepare=False, repeatable=True)


def _parameters(search: Search, part: Part) -> dict[str, Any]:
    # The time in the ids says where to begin and where to end.
    below = [part.older_than] if part.older_than else []
    above = [part.newer_than] if part.newer_than else []
    if search.created_to is not None:
        below.append(_first_id(search.created_to + SKEW))
    if search.created_from is not None:
        above.append(_first_id(search.created_from - SKEW))
    return {
        **search.parameters(),
        "below": str(min(below)) if below else None,
        "above": str(max(above)) if above else None,
        "exact": [str(i) for i in search.exact],
        "limit": part.limit,
        "look": part.look,
        "most_running": MOST_RUNNING,
    }


def _first_id(moment: datetime) -> UUID:
    """No id of this moment is smaller."""
    milliseconds = max(0, int(moment.timestamp() * 1000))
    return UUID(int=milliseconds << 80)


def _json(tags: Sequence[Tag]) -> str | None:
    rows = [{"key": tag.key, "values": list(tag.values) or None} for tag in tags]
    return json.dumps(rows) if rows else None


def _look(rows: Rows) -> Matches:
    return Matches(_tasks(rows), rows[0][0] if rows else None)


def _tasks(rows: Rows) -> list[FoundTask]:
    # Where nothing is found, there is one row all the same.
    return [FoundTask(*row[1:]) for row in rows if row[1] is not None]


def _counts(rows: Rows) -> dict[str, CappedCount]:
    return {state: CappedCount(count, capped) for state, count, capped in rows}

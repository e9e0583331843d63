"""Inserting tasks: one by an INSERT of its own, some by an INSERT of JSON, many by COPY."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from tasklib.db.failures import Conflict
from tasklib.db.query import Query, Rows
from tasklib.errors import DuplicateTask, IdempotencyKeyTaken, InvalidOption
from tasklib.sql import statement

COPY_CHUNK = 1000
"""Rows that are written at a time: the server takes them in while the next ones are made."""
COPY, COPY_SIMPLE = "submit_copy", "submit_copy_simple"
"""The statements that take the rows of `copied`. They have no parameters and no answer, so they are no `Query`."""


@dataclass(frozen=True, eq=False)
class SubmitTerms:
    """What a task is submitted with besides its arguments: all defaults applied, everything checked, JSON as text.

    Many tasks share theirs, so what the statements need of them is made once.
    """

    name: str
    queue: str
    max_retries: int
    timeout_seconds: int | None
    priority: int
    tags: str
    required_capabilities: tuple[str, ...]
    trace_context: str | None
    delay_seconds: float | None = None
    scheduled_at: datetime | None = None
    idempotency_key: str | None = None
    idempotency_window: float | None = None
    submitted_by: str | None = None
    lane: str = ""
    payload_version: int | None = None
    key_id: str | None = None
    merge_key: str | None = None
    merge_while: str | None = None
    on_duplicate: str | None = None
    debounce: float | None = None
    max_wait: float | None = None
    needs_key: bool = False
    """True until its key is made of the arguments: see `client/merging.py`."""
    key_arguments: tuple[str, ...] | None = None
    """The arguments that its key is made of; None: all of them."""

    @cached_property
    def is_plain(self) -> bool:
        """True if COPY can insert it: it starts at once, and carries no key, no version and nothing sealed."""
        return (
            self.delay_seconds is None
            and self.scheduled_at is None
            and self.shared_key is None
            and self.payload_version is None
            and self.key_id is None
        )

    @cached_property
    def is_simple(self) -> bool:
        """True if it is plain, and what most tasks leave unsaid is what the columns have as their defaults."""
        return (
            self.is_plain
            and self.tags == "{}"
            and not self.required_capabilities
            and self.trace_context is None
            and self.submitted_by is None
            and not self.lane
        )

    @cached_property
    def shared_key(self) -> SharedKey | None:
        """What it may have in common with another task, of which then only one exists."""
        if self.merge_key is not None and self.merge_while is not None:
            return self.merge_while, self.merge_key
        return None if self.idempotency_key is None else ("idempotency", self.idempotency_key)

    @property
    def replaces(self) -> bool:
        """True if it changes the task that has its merge key."""
        return self.on_duplicate == "replace" or self.debounce is not None

    @cached_property
    def as_parameters(self) -> dict[str, str | None]:
        """For submit_simple.sql if it is simple, else for submit_row.sql."""
        simple = {
            "name": self.name,
            "queue": self.queue,
            "max_retries": _text(self.max_retries),
            "timeout_seconds": _text(self.timeout_seconds),
            "priority": _text(self.priority),
        }
        if self.is_simple:
            return simple
        return simple | {
            "scheduled_at": self._moment,
            "delay_seconds": _text(self.delay_seconds),
            "tags": self.tags,
            "required_capabilities": _array(self.required_capabilities),
            "trace_context": self.trace_context,
            "submitted_by": self.submitted_by,
            "lane": self.lane,
            "idempotency_key": self.idempotency_key,
            "idempotency_window": _text(self.idempotency_window),
        }

    @cached_property
    def as_json(self) -> str:
        """For the statements that take JSON: the object without its braces."""
        values = {
            "name": self.name,
            "queue": self.queue,
            "max_retries": self.max_retries,
            "timeout_seconds": self.timeout_seconds,
            "priority": self.priority,
            "required_capabilities": self.required_capabilities,
            "delay_seconds": self.delay_seconds,
            "scheduled_at": self._moment,
            "submitted_by": self.submitted_by,
            "lane": self.lane or None,
            "payload_version": self.payload_version,
            "key_id": self.key_id,
            "idempotency_key": self.idempotency_key,
            "idempotency_window": self.idempotency_window,
            "merge_key": self.merge_key,
            "merge_while": self.merge_while,
            "on_duplicate": self.on_duplicate,
            "debounce": self.debounce,
            "max_wait": self.max_wait,
        }
        given = json.dumps({name: value for name, value in values.items() if value is not None})[1:-1]
        # These are JSON already: set in, not encoded again.
        return f'{given},"tags":{self.tags},"trace_context":{self.trace_context or "null"}'

    @cached_property
    def before_kwargs(self) -> str:
        """For COPY: the columns between the id and the arguments."""
        return f"\t{_column(self.name)}\t{_column(self.queue)}\t"

    @cached_property
    def after_kwargs(self) -> str:
        """For submit_copy.sql: the columns behind the arguments."""
        others = (self.tags, _array(self.required_capabilities), self.trace_context, self.submitted_by, self.lane)
        return self.after_kwargs_if_simple[:-1] + "".join(f"\t{_column(value)}" for value in others) + "\n"

    @cached_property
    def after_kwargs_if_simple(self) -> str:
        """For submit_copy_simple.sql: the columns behind the arguments."""
        behind = (self.max_retries, self.timeout_seconds, self.priority)
        return "".join(f"\t{_column(_text(value))}" for value in behind) + "\n"

    @property
    def _moment(self) -> str | None:
        return None if self.scheduled_at is None else self.scheduled_at.astimezone(UTC).isoformat()


class NewTask(NamedTuple):
    """A task that is ready to be inserted."""

    id: UUID
    kwargs: str
    terms: SubmitTerms


SharedKey = tuple[str, str]
"""The kind of a key ("idempotency", "pending", "unfinished"), and the key."""
Kept = dict[tuple[str, SharedKey], UUID]
"""Which task has an idempotency key or a merge key, by its name and key."""


def submit_one(task: NewTask, owner: str | None = None) -> Query[Any]:
    """Insert one task; if it carries a key, read which id has it now."""
    terms = task.terms
    parameters = {"id": task.id.hex, "kwargs": task.kwargs, **terms.as_parameters}
    if terms.is_simple:
        return Query("submit_simple", parameters, _none_kept, repeatable=True, all_text=True)
    if terms.merge_key is not None:
        return submit_merging([task], owner)
    if terms.payload_version is not None or terms.key_id is not None:  # which submit_row.sql doesn't know
        return submit([task]) if terms.idempotency_key is None else submit_once([task], owner)
    if terms.idempotency_key is None:
        return Query("submit_one", parameters, _none_kept, repeatable=True, all_text=True)
    return Query("submit_one_once", parameters, partial(_ids_by_key, [task], owner, {}), repeatable=True, all_text=True)


def submit(tasks: Sequence[NewTask]) -> Query[None]:
    """Insert tasks without idempotency keys, all in one statement."""
    return Query("submit", {"tasks": _as_json(tasks)}, _none_kept, repeatable=True, all_text=True)


def submit_given(tasks: Sequence[NewTask]) -> Query[None]:
    """The same with ids made by the caller.

    InvalidOption if one of them is another task's. The others are inserted by then: roll back.
    """
    return Query("submit_given", {"tasks": _as_json(tasks)}, _refuse_foreign, repeatable=True, all_text=True)


def submit_once(tasks: Sequence[NewTask], owner: str | None = None, besides: Kept | None = None) -> Query[Kept]:
    """Insert tasks, no two with the same name and idempotency key, and read which id each (name, key) has now.

    With an owner, IdempotencyKeyTaken if one belongs to another owner. The others are inserted by then: roll back.
    """
    parameters = {"tasks": _as_json(tasks)}
    read = partial(_ids_by_key, tasks, owner, {} if besides is None else besides)
    return Query("submit_once", parameters, read, repeatable=True, all_text=True)


def submit_merging(tasks: Sequence[NewTask], owner: str | None = None, besides: Kept | None = None) -> Query[Any]:
    """Insert tasks with merge keys, no two the same, or merge them into those that have their keys.

    DuplicateTask if one must not be merged, IdempotencyKeyTaken if its key belongs to another owner. The others are
    inserted by then: roll back. The answer holds `besides` as well.
    """
    parameters = {"tasks": _as_json(tasks)}
    read = partial(_ids_by_merge_key, tasks, owner, {} if besides is None else besides)
    if any(terms.replaces for _, _, terms in tasks):
        return Query("submit_replacing", {**parameters, "owner": owner}, read, repeatable=True, all_text=True)
    return Query("submit_unique", parameters, read, repeatable=True, all_text=True)


def submit_keyed(keyed: Sequence[NewTask], merging: Sequence[NewTask], owner: str | None) -> list[Query[Any]]:
    """The statements for tasks with keys of either kind, for one transaction: the last one answers for all."""
    kept: Kept = {}
    queries: list[Query[Any]] = [submit_once(keyed, owner, kept)] if keyed else []
    return [*queries, submit_merging(merging, owner, kept)] if merging else queries


def key_holders(keys: Sequence[tuple[str, SharedKey]]) -> Query[set[int]]:
    """Which of these keys, each with a task's name, some task has: their places in the list."""
    parameters = {
        "names": [name for name, _ in keys],
        "kinds": [kind for _, (kind, _) in keys],
        "keys": [key for _, (_, key) in keys],
    }
    return Query("key_holders", parameters, lambda rows: {row[0] - 1 for row in rows}, repeatable=True)


def copy_of(kinds: Iterable[SubmitTerms]) -> str:
    """The name of the COPY for tasks with these terms."""
    return COPY_SIMPLE if all(terms.is_simple for terms in kinds) else COPY


def copy_statement(name: str, schema: str | None) -> bytes:
    """The text of a COPY. It has no parameters, so no percent sign is doubled."""
    return statement(name, schema).replace("%%", "%").encode()


def copied(tasks: Sequence[NewTask], name: str) -> Iterator[str]:
    """The rows for the COPY of this name in its text format, some at a time."""
    end = attrgetter("after_kwargs_if_simple" if name == COPY_SIMPLE else "after_kwargs")
    for start in range(0, len(tasks), COPY_CHUNK):
        # In JSON text a backslash is the only character that COPY would take for something else.
        yield "".join(
            [
                f"{id_.int:032x}{terms.before_kwargs}{kwargs.replace(_BACKSLASH, _ESCAPED)}{end(terms)}"
                for id_, kwargs, terms in tasks[start : start + COPY_CHUNK]
            ]
        )


_BACKSLASH, _ESCAPED = "\\", "\\\\"


def _ids_by_key(tasks: Sequence[NewTask], owner: str | None, kept: Kept, rows: Rows) -> Kept:
    for id_, name, key, submitted_by in rows:
        if key is None:
            continue
        if owner is not None and submitted_by != owner:
            raise IdempotencyKeyTaken(name, key)
        kept[name, ("idempotency", key)] = UUID(id_)
    for _, _, terms in tasks:
        if terms.idempotency_key is not None and (terms.name, ("idempotency", terms.idempotency_key)) not in kept:
            raise Conflict(f"the idempotency key {terms.idempotency_key!r} was taken by another transaction just now")
    return kept


def _none_kept(_: Rows) -> None:
    """Without idempotency keys each task has its own id."""


def _ids_by_merge_key(tasks: Sequence[NewTask], owner: str | None, kept: Kept, rows: Rows) -> Kept:
    answers = {UUID(given): (id_, what, submitted_by, state) for given, id_, what, submitted_by, state in rows}
    for new, _, terms in tasks:
        id_, what, submitted_by, state = answers.get(UUID(int=new.int), (None, None, None, None))
        key = terms.shared_key
        assert key is not None  # the caller chose these tasks by it
        if what == "foreign":
            raise foreign_id()
        if what is not None and owner is not None and submitted_by != owner:
            raise IdempotencyKeyTaken(terms.name, key[1])
        if what == "known":
            if terms.on_duplicate == "raise" or (terms.replaces and state == "running"):
                raise DuplicateTask(terms.name, UUID(id_), state)
            if terms.replaces or terms.merge_while == "pending":
                what = None  # it waited a moment ago, and was claimed or has ended since
        if what is None:
            raise Conflict(f"the merge key {key[1]!r} was taken or freed by another transaction just now")
        kept[terms.name, key] = UUID(id_)
    return kept


def foreign_id() -> InvalidOption:
    """Whose it is is not for every caller to know."""
    return InvalidOption(
        "an id that was given belongs to another task, or to this one with other arguments or options. "
        "Make a new id for each task."
    )


def _refuse_foreign(rows: Rows) -> None:
    for _, is_the_same in rows:
        if is_the_same in (False, "f"):  # as a driver reads it, or as text
            raise foreign_id()


def _as_json(tasks: Sequence[NewTask]) -> str:
    rows = [f'{{"id":"{id_.hex}","kwargs":{kwargs},{terms.as_json}}}' for id_, kwargs, terms in tasks]
    return f"[{','.join(rows)}]"


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _array(values: Sequence[str]) -> str:
    """A text[] as PostgreSQL writes it."""
    quoted = (value.replace(_BACKSLASH, _ESCAPED).replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"


def _column(value: str | None) -> str:
    """One column in COPY's text format."""
    if value is None:
        return "\\N"
    return value.replace(_BACKSLASH, _ESCAPED).replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")

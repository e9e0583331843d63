"""Inserting tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from tasklib.db.query import Query, Rows, nothing


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task that is ready to be inserted: all defaults applied, everything checked, JSON already text."""

    id: UUID
    name: str
    queue: str
    kwargs: str
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

    @property
    def is_plain(self) -> bool:
        """True if COPY can insert it: it starts at once and carries no key."""
        return self.delay_seconds is None and self.scheduled_at is None and self.idempotency_key is None


def submit(tasks: Sequence[NewTask]) -> Query[None]:
    """Insert tasks without idempotency keys, all in one statement."""
    return Query("submit", {"tasks": _as_json(tasks)}, nothing, repeatable=True)


def submit_once(tasks: Sequence[NewTask]) -> Query[dict[tuple[str, str], UUID]]:
    """Insert tasks, no two with the same name and idempotency key, and read which id each (name, key) has now."""
    return Query("submit_once", {"tasks": _as_json(tasks)}, _ids_by_key, repeatable=True)


def copy_rows(tasks: Iterable[NewTask]) -> Iterable[tuple[object, ...]]:
    """Rows for `COPY` in the column order of submit_copy.sql."""
    for t in tasks:
        yield (
            t.id,
            t.name,
            t.queue,
            t.kwargs,
            t.max_retries,
            t.timeout_seconds,
            t.priority,
            t.tags,
            list(t.required_capabilities),
            t.trace_context,
        )


def _ids_by_key(rows: Rows) -> dict[tuple[str, str], UUID]:
    return {(name, key): UUID(id_) for id_, name, key in rows if key is not None}


def _as_json(tasks: Sequence[NewTask]) -> str:
    return f"[{','.join(map(_object, tasks))}]"


def _object(t: NewTask) -> str:
    # kwargs, tags and trace_context are JSON text already: set in, not encoded again.
    parts = [
        f'{{"id":"{t.id}","name":{json.dumps(t.name)},"queue":{json.dumps(t.queue)},"kwargs":{t.kwargs}',
        f',"max_retries":{t.max_retries},"priority":{t.priority},"tags":{t.tags}',
        f',"required_capabilities":{json.dumps(t.required_capabilities)}',
    ]
    if t.timeout_seconds is not None:
        parts.append(f',"timeout_seconds":{t.timeout_seconds}')
    if t.trace_context is not None:
        parts.append(f',"trace_context":{t.trace_context}')
    if t.delay_seconds is not None:
        parts.append(f',"delay_seconds":{t.delay_seconds!r}')
    if t.scheduled_at is not None:
        parts.append(f',"scheduled_at":"{t.scheduled_at.astimezone(UTC).isoformat()}"')
    if t.idempotency_key is not None:
        parts.append(
            f',"idempotency_key":{json.dumps(t.idempotency_key)},"idempotency_window":{t.idempotency_window!r}'
        )
    return "".join(parts) + "}"

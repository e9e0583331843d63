"""The payloads of tasks as they are stored, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from tasklib.db.query import Query
from tasklib.store.audit import Action, audited
from tasklib.store.filters import TaskFilter

FIRST = "00000000-0000-0000-0000-000000000000"
"""Before every id."""


class StoredArguments(NamedTuple):
    """The arguments of one task."""

    id: str
    name: str
    payload_version: int | None
    kwargs: str
    later: list[str]
    """Arguments that are results of other tasks."""


def unfinished(after: str = FIRST, limit: int = 1000) -> Query[list[StoredArguments]]:
    """Tasks that are still to run, behind this id."""
    parameters = {"after": after, "limit": limit}
    return Query(
        "unfinished_payloads", parameters, lambda rows: [StoredArguments(*row) for row in rows], repeatable=True
    )


class SealedRow(NamedTuple):
    """What a sealed task holds, as it is stored."""

    id: str
    name: str
    state: str
    token: int
    kwargs: str
    result: str | None
    error: str | None
    progress: str | None
    signals_sent: int | None = None
    steps: str | None = None
    """[kind, name, result], ... as JSON text: those with something sealed or in the payload store."""
    signals: str | None = None
    """[seq, payload], ... as JSON text: those that are sealed."""


def sealed_with(key_id: str, after: str = FIRST, limit: int = 500) -> Query[list[SealedRow]]:
    """Tasks sealed with this key, behind this id."""
    parameters = {"key_id": key_id, "after": after, "limit": limit}
    return Query("sealed_page", parameters, lambda rows: [SealedRow(*row) for row in rows], repeatable=True)


def reseal(rows: Sequence[SealedRow], old_key: str, new_key: str, *, by: str) -> Query[set[str]]:
    """Store these tasks as they were sealed anew; reads which of them were still as they had been read."""
    columns = list(zip(*rows, strict=True))
    parameters = {
        "ids": columns[0],
        "states": columns[2],
        "tokens": columns[3],
        "kwargs": columns[4],
        "results": columns[5],
        "errors": columns[6],
        "progress": columns[7],
        "signals_sent": columns[8],
        "steps": columns[9],
        "signals": columns[10],
        "old_key": old_key,
        "new_key": new_key,
    }
    return audited(
        "reseal",
        {name: list(v) if isinstance(v, tuple) else v for name, v in parameters.items()},
        lambda answer: {row[0] for row in answer},
        by=by,
        action=Action.ROTATE_KEY,
        target=f"key:{old_key}",
        details={"to": new_key},
    )


@dataclass(frozen=True, slots=True)
class ErasedCounts:
    """What an erasure did, or would do."""

    erased: int
    left: int
    """Tasks that match and are not finished."""


def erase_look(chosen: TaskFilter) -> Query[ErasedCounts]:
    """How many tasks an erasure would take and leave."""
    return Query("erase_look", chosen.parameters(), lambda rows: ErasedCounts(*rows[0]), prepare=False, repeatable=True)


def erasable(chosen: TaskFilter, after: str, limit: int) -> Query[list[str]]:
    """The ids of finished tasks that match and are not erased yet, behind this id."""
    parameters = {**chosen.parameters(), "after": after, "limit": limit}
    return Query("erasable", parameters, lambda rows: [row[0] for row in rows], prepare=False, repeatable=True)


def erase(ids: Sequence[str], chosen: TaskFilter, *, by: str) -> Query[list[str]]:
    """Erase what these tasks hold; reads which of them were still finished."""
    return audited(
        "erase",
        {"ids": list(ids)},
        lambda rows: [row[0] for row in rows],
        by=by,
        action=Action.ERASE_TASKS,
        details={**chosen.given(), "ids": chosen.parameters()["ids"]},
        repeatable=True,
    )


class KeyCount(NamedTuple):
    """How much one key seals."""

    key_id: str
    tasks: int
    unfinished: int
    newest: datetime | None


def key_counts() -> Query[list[KeyCount]]:
    """Every key that some task is sealed with."""
    return Query("key_counts", {}, lambda rows: [KeyCount(*row) for row in rows], repeatable=True)

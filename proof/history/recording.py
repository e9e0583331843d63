"""The table's own account: what the triggers recorded, read as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import psycopg

SQL = Path(__file__).with_name("recording.sql")


class Transition(NamedTuple):
    """One move of one task. A row that came has no `old_state`, one that was deleted no `new_state`."""

    seq: int
    at: datetime
    by: str
    task: str
    old_state: str | None
    new_state: str | None
    old_token: int | None
    new_token: int | None
    worker: str | None
    retry_count: int | None
    max_retries: int | None
    crash_count: int | None
    wrote_token: int | None
    """The token that a completed attempt says it held."""
    at_gate: bool | None = None
    """It waits at a gate of its flow."""
    suspended: bool | None = None
    """A durable task has given its slot back, which forgets its crashes."""
    requested: bool | None = None
    """Its cancel had been requested: it was not cancelled by a gate."""

    @property
    def is_claim(self) -> bool:
        return self.new_state == "running" and self.old_state != "running"


class Reign(NamedTuple):
    """A leader and its term."""

    holder: str
    old_term: int | None
    term: int


def install(db: psycopg.Connection) -> None:
    """Record from now on. The database must be one made for it."""
    db.execute(SQL.read_bytes())


def transitions(db: psycopg.Connection) -> Iterator[Transition]:
    """All of them, task by task, in the order in which they happened to each."""
    columns = ", ".join("task::text" if name == "task" else name for name in Transition._fields)
    with db.transaction(), db.cursor(name="history") as cursor:
        cursor.itersize = 20_000
        cursor.execute(f"SELECT {columns} FROM transitions ORDER BY task, seq".encode())
        yield from map(Transition._make, cursor)


def reigns(db: psycopg.Connection) -> list[Reign]:
    rows = db.execute("SELECT holder, old_term, term FROM terms ORDER BY seq").fetchall()
    return [Reign._make(row) for row in rows]

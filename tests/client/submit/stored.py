"""What submissions left in the table."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row


def rows(db: psycopg.Connection) -> list[dict[str, Any]]:
    with db.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM tasks ORDER BY id").fetchall()


def row(db: psycopg.Connection, task_id: UUID) -> dict[str, Any]:
    return next(r for r in rows(db) if r["id"] == task_id)


def count(db: psycopg.Connection) -> int:
    found = db.execute("SELECT count(*) FROM tasks").fetchone()
    assert found is not None
    return int(found[0])

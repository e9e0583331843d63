"""Run a waiting task before its time."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import psycopg
import pytest

from tasklib import Client
from tasklib.errors import InvalidOption, TaskNotFound
from tests.client.conftest import Either

LATER = "now() + interval '1 h'"


def insert(db: psycopg.Connection, **columns: str) -> str:
    names, values = ", ".join(["name", *columns]), ", ".join(["'work'", *columns.values()])
    row = db.execute(f"INSERT INTO tasks ({names}) VALUES ({values}) RETURNING id".encode()).fetchone()
    assert row is not None
    return str(row[0])


async def test_a_task_with_a_start_time_is_due_now(either: Either, client: Client, db: psycopg.Connection) -> None:
    later = insert(db, scheduled_at=LATER)
    await either.run_task_now(later)
    found = client.get_task(later)
    assert (found.state, found.next_retry_at) == ("pending", None)
    assert found.scheduled_at <= datetime.now(UTC)


async def test_a_failed_task_is_retried_now_and_keeps_what_it_used(
    either: Either, client: Client, db: psycopg.Connection
) -> None:
    failed = insert(db, state="'failed'", next_retry_at=LATER, retry_count="2", scheduled_at="now() - interval '1 h'")
    before = client.get_task(failed)
    await either.run_task_now(failed)
    found = client.get_task(failed)
    assert (found.state, found.retry_count, found.scheduled_at) == ("failed", 2, before.scheduled_at)
    assert found.next_retry_at is not None
    assert found.next_retry_at <= datetime.now(UTC)


@pytest.mark.parametrize(
    "columns",
    [
        {"scheduled_at": "now() - interval '1 s'"},
        {"scheduled_at": LATER, "waits_for": f"'{uuid4()}'"},
        {"scheduled_at": LATER, "awaited_signals": "'{}'"},
        {"scheduled_at": LATER, "state": "'running'", "worker_id": "'w'", "locked_until": LATER},
        {"scheduled_at": LATER, "state": "'cancelled'", "completed_at": "now()"},
    ],
    ids=["due", "at a gate", "durable and asleep", "running", "finished"],
)
async def test_what_does_not_wait_for_its_time_stays_as_it_is(
    either: Either, db: psycopg.Connection, columns: dict[str, str]
) -> None:
    task_id = insert(db, **columns)
    before = db.execute("SELECT t::text FROM tasks AS t WHERE id = %s", [task_id]).fetchone()
    with pytest.raises(InvalidOption, match="doesn't wait for its time"):
        await either.run_task_now(task_id)
    assert db.execute("SELECT t::text FROM tasks AS t WHERE id = %s", [task_id]).fetchone() == before


async def test_an_unknown_task_is_not_found(either: Either) -> None:
    with pytest.raises(TaskNotFound):
        await either.run_task_now(uuid4())

"""How much waits, by queue and level, at a bounded cost; and a worker's tasks found among millions."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from tasklib.db.query import Query
from tasklib.sql import statement
from tasklib.store import lookup
from tasklib.store.backlog import Backlog, backlog
from tasklib.store.filters import TaskFilter
from tests.store.test_claim import insert, rows_read, scans_of_tasks


def found(db: psycopg.Connection, **bounds: int) -> list[tuple[str, str, int, bool]]:
    return [(b.queue, b.level, b.depth, b.is_capped) for b in _run(db, **bounds)]


def _run(db: psycopg.Connection, **bounds: int) -> list[Backlog]:
    query = backlog(**bounds)
    return query.read(db.execute(statement(query.name, None).encode(), query.parameters).fetchall())


def plan_of(db: psycopg.Connection, query: Query[Any]) -> dict[str, Any]:
    text = "EXPLAIN (ANALYZE, FORMAT JSON) " + statement(query.name, None)
    row = db.execute(text.encode(), query.parameters).fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def test_what_is_due_is_counted_by_queue_and_level(db: psycopg.Connection) -> None:
    insert(db, 3, name="'a'", priority="100")
    insert(db, 4, name="'a'", priority="n")
    insert(db, 5, name="'b'", scheduled_at="now() - interval '60 s' + n * interval '1 s'")
    insert(db, 2, name="'b'", queue="'mail'", priority="-n")
    insert(db, 9, name="'later'", scheduled_at="now() + interval '1 h'")
    insert(db, 9, name="'done'", state="'completed'", completed_at="now()")
    insert(db, 1, name="'again'", queue="'mail'", state="'failed'", next_retry_at="now() - interval '5 s'")
    assert found(db) == [
        ("default", "high", 3, False),
        ("default", "medium", 9, False),
        ("mail", "low", 2, False),
        ("mail", "medium", 1, False),
    ]
    assert _run(db)[1].oldest_age_seconds >= 59


def test_counting_ends_at_its_limits_and_says_so(db: psycopg.Connection) -> None:
    insert(db, 30, name="'a'", priority="n % 3")
    assert found(db, most=20) == [("default", "medium", 20, True)]
    assert found(db, most_lanes=2) == [("default", "medium", 20, True)], "the third lane was not looked at"
    assert found(db) == [("default", "medium", 30, False)]


def test_nothing_waits_in_an_empty_table(db: psycopg.Connection) -> None:
    assert found(db) == []


def test_both_read_a_bounded_number_of_rows_whatever_lies_beside(db: psycopg.Connection) -> None:
    db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
    insert(db, 100_000, name="'work'", state="'completed'", started_at="now()", completed_at="now()")
    insert(db, 30_000, name="'work'", scheduled_at="now() + interval '1 h'")
    insert(db, 30_000, name="'work'", priority="-10")
    running = {"state": "'running'", "worker_id": "'w' || n % 10", "locked_until": "now() + interval '1 h'"}
    insert(db, 100, name="'work'", **running)
    db.execute("ANALYZE tasks")

    plan = plan_of(db, backlog(most=1000))
    for scan in scans_of_tasks(plan):
        assert scan["Node Type"].startswith("Index"), json.dumps(scan, indent=1)
    assert rows_read(plan) <= 1000 + 10
    assert found(db, most=1000) == [("default", "low", 1000, True)]

    query = lookup.list_(TaskFilter(worker="w3"), after=None, limit=50)
    assert rows_read(plan_of(db, query)) <= 100 + 10
    assert len(query.read(db.execute(statement("list", None).encode(), query.parameters).fetchall())) == 10

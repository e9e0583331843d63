"""What the dashboard's statements read beside many tasks: rows by an index, once, and a fingerprint for each line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tasklib.db.query import Query
from tasklib.sql import statement
from tasklib.store import dashboard, dead_letters, doctor, failures
from tasklib.store.failures import FailureFilter
from tasklib.store.filters import EVERY_DEAD_LETTER
from tests.store.test_claim import insert, nodes, pages_read, rows_read

LINES = 7


def plan_of(db: psycopg.Connection, query: Query[Any]) -> dict[str, Any]:
    text = "EXPLAIN (ANALYZE, BUFFERS, VERBOSE, FORMAT JSON) " + statement(query.name, None)
    row = db.execute(text.encode(), query.parameters).fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def fingerprints(plan: dict[str, Any]) -> float:
    """How many rows the first node that works out fingerprints delivers."""
    found = [n for n in nodes(plan) if any("tasklib_fingerprint(" in each for each in n.get("Output", ()))]
    return max(n["Actual Rows"] * n["Actual Loops"] for n in found)


@pytest.fixture
def many(db: psycopg.Connection) -> psycopg.Connection:
    error = f"E'Traceback\\n' || repeat('  line\\n', 30) || 'ValueError: ' || (n %% {LINES})".replace("%%", "%")
    insert(db, 6_000, name="'done'", state="'completed'", completed_at="now()")
    insert(
        db, 3_000, name="'a'", state="'dead_letter'", error=error, started_at="now()",
        completed_at="now() - interval '1 min' + n * interval '1 ms'",
    )  # fmt: skip
    insert(
        db, 3_000, name="'a'", state="'failed'", error=error, started_at="now() - interval '1 min'",
        next_retry_at="now() + interval '1 h'",
    )  # fmt: skip
    db.execute("VACUUM ANALYZE tasks")
    return db


def causes() -> Query[Any]:
    now = datetime.now(UTC)
    return failures.causes(FailureFilter(now - timedelta(minutes=15), now), 50, 30)


@pytest.mark.parametrize(
    "query", [causes, lambda: dead_letters.latest_groups(EVERY_DEAD_LETTER, 100, 2_000)], ids=["failures", "groups"]
)
def test_a_fingerprint_is_worked_out_once_for_all_errors_that_end_with_the_same_line(
    many: psycopg.Connection, query: Callable[[], Query[Any]]
) -> None:
    assert fingerprints(plan_of(many, query())) == LINES


def test_failures_are_read_where_their_index_finds_them(many: psycopg.Connection) -> None:
    plan = plan_of(many, causes())
    assert rows_read(plan) <= 2 * (2 * failures.LOOK + 2 * failures.LOOK_AT_OTHERS)
    pages = many.execute("SELECT pg_relation_size('tasks') / 8192").fetchone()
    assert pages is not None
    # Each row looked up by its id would be three pages, 13,000 in all.
    assert pages_read(plan) < pages[0] + 200


def test_the_screens_look_at_a_bounded_number_of_waiting_tasks_for_those_that_no_worker_takes(
    db: psycopg.Connection,
) -> None:
    insert(db, 9_000, name="'a'")
    db.execute("ANALYZE tasks")
    assert rows_read(plan_of(db, doctor.lanes(500, 1_000))) <= 1_100


def test_what_other_workers_run_is_not_read_out(db: psycopg.Connection) -> None:
    columns = {"name": "'a'", "state": "'running'", "started_at": "now()", "locked_until": "now() + interval '1 h'"}
    insert(db, 3, worker_id="'w1'", **columns)
    insert(db, 40, worker_id="'w2'", **columns)
    query = dashboard.running(["w1", "w3"])
    found = query.read(db.execute(statement(query.name, None).encode(), query.parameters).fetchall())
    assert [attempt.worker for attempt in found] == ["w1"] * 3

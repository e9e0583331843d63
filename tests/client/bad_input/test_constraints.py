"""What the database itself refuses, whoever writes."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"name": ""}, "tasks_name_not_empty"),
        ({"state": "done"}, "tasks_state_known"),
        ({"state": "PENDING"}, "tasks_state_known"),
        ({"state": ""}, "tasks_state_known"),
        ({"kwargs": "[]"}, "tasks_kwargs_is_object"),
        ({"kwargs": "null"}, "tasks_kwargs_is_object"),
        ({"kwargs": '"text"'}, "tasks_kwargs_is_object"),
        ({"kwargs": '[{"a": 1}]'}, "tasks_kwargs_is_object"),
        ({"tags": "[1]"}, "tasks_tags_is_object"),
        ({"priority": 101}, "tasks_numbers_in_range"),
        ({"priority": -11}, "tasks_numbers_in_range"),
        ({"max_retries": -1}, "tasks_numbers_in_range"),
        ({"retry_count": -1}, "tasks_numbers_in_range"),
        ({"crash_count": -1}, "tasks_numbers_in_range"),
        ({"retry_count": 2_000_000_000}, "tasks_numbers_in_range"),
        ({"crash_count": 2_000_000_000}, "tasks_numbers_in_range"),
        ({"lease_token": -1}, "tasks_numbers_in_range"),
        ({"lease_token": 9_000_000_000_000_000_000}, "tasks_numbers_in_range"),
        ({"scheduled_at": "infinity"}, "tasks_times_in_range"),
        ({"scheduled_at": "-infinity"}, "tasks_times_in_range"),
        ({"scheduled_at": "10000-01-01"}, "tasks_times_in_range"),
        ({"created_at": "0001-01-01 BC"}, "tasks_times_in_range"),
        ({"state": "failed", "next_retry_at": "infinity"}, "tasks_times_in_range"),
        ({"cancel_requested_at": "infinity"}, "tasks_times_in_range"),
        ({"idempotency_expires_at": "infinity"}, "tasks_times_in_range"),
        ({"required_capabilities": "{{a,b},{c,d}}"}, "tasks_capabilities_is_list"),
        ({"merge_key": "k"}, "tasks_merge_key_complete"),
        ({"merge_while": "pending"}, "tasks_merge_key_complete"),
        ({"merge_key": "k", "merge_while": "running"}, "tasks_merge_while_known"),
        ({"timeout_seconds": 0}, "tasks_numbers_in_range"),
        ({"state": "running"}, "tasks_state_fits"),
        (
            {"state": "running", "worker_id": "w", "locked_until": "2030-01-01", "completed_at": "2030-01-01"},
            "tasks_state_fits",
        ),
        (
            {"state": "failed", "next_retry_at": "2030-01-01", "worker_id": "w", "locked_until": "2030-01-01"},
            "tasks_state_fits",
        ),
        ({"worker_id": "w", "locked_until": "2030-01-01"}, "tasks_state_fits"),
        ({"state": "failed"}, "tasks_state_fits"),
        ({"state": "failed", "next_retry_at": "2030-01-01", "completed_at": "2030-01-01"}, "tasks_state_fits"),
        (
            {"state": "completed", "completed_at": "2030-01-01", "worker_id": "w", "locked_until": "2030-01-01"},
            "tasks_state_fits",
        ),
        ({"state": "completed"}, "tasks_state_fits"),
        ({"state": "cancelled"}, "tasks_state_fits"),
        ({"state": "dead_letter"}, "tasks_state_fits"),
        ({"completed_at": "2030-01-01"}, "tasks_state_fits"),
    ],
    ids=str,
)
def test_the_database_refuses_what_no_task_can_be(columns: dict[str, Any], constraint: str, db: Any) -> None:
    given = {"name": "by.hand", **columns}
    insert = sql.SQL("INSERT INTO tasks ({}) VALUES ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, given)), sql.SQL(", ").join(map(sql.Placeholder, given))
    )
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        db.execute(insert, given)
    assert caught.value.diag.constraint_name == constraint


@pytest.mark.parametrize("column", ["name", "queue", "kwargs", "scheduled_at", "priority", "tags", "max_retries"])
def test_the_database_refuses_a_task_without_what_every_task_has(column: str, db: Any) -> None:
    given = {"name": "by.hand", column: None}
    insert = sql.SQL("INSERT INTO tasks ({}) VALUES ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, given)), sql.SQL(", ").join(map(sql.Placeholder, given))
    )
    with pytest.raises(psycopg.errors.NotNullViolation) as caught:
        db.execute(insert, given)
    assert caught.value.diag.column_name == column


def test_the_database_refuses_a_key_that_is_taken(db: Any) -> None:
    insert = "INSERT INTO tasks (name, idempotency_key) VALUES ('a', 'k')"
    db.execute(insert)
    with pytest.raises(psycopg.errors.UniqueViolation, match="tasks_idempotency"):
        db.execute(insert)
    db.execute("DELETE FROM tasks")

"""`tasklib signal`, and what `show` and `explain` say of a durable task that waits."""

from __future__ import annotations

import psycopg
import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("url")


def suspended(db: psycopg.Connection, *signals: str) -> str:
    """A durable task that waits, with one step on record."""
    insert = "INSERT INTO tasks (name, scheduled_at, awaited_signals) VALUES ('order', %s, %s) RETURNING id::text"
    due = "9999-12-29 00:00:00+00" if signals else "2040-01-01 00:00:00+00"
    task_id = str(db.execute(insert, (due, list(signals))).fetchall()[0][0])
    db.execute("INSERT INTO steps (task, name, result, token) VALUES (%s, 'charge', '{\"value\": 5}', 1)", (task_id,))
    return task_id


def test_a_signal_is_sent_by_a_command_and_audited(run: Run, db: psycopg.Connection) -> None:
    task_id = suspended(db, "approved")
    result = run("signal", task_id[-8:], "approved", '{"by": "ann"}', "--key", "k")
    assert (result.exit_code, result.stdout) == (0, f"{task_id}\tsent\n")
    assert db.execute("SELECT name, payload, key FROM signals").fetchall() == [("approved", {"by": "ann"}, "k")]
    assert db.execute("SELECT action, details FROM audit").fetchall() == [
        ("task.signal", {"signal": "approved", "key": "k"})
    ]
    assert db.execute("SELECT scheduled_at <= now() FROM tasks").fetchone() == (True,)


def test_a_finished_task_and_a_payload_that_is_no_json_are_refused(run: Run, db: psycopg.Connection) -> None:
    task_id = suspended(db, "approved")
    assert "is not JSON" in run("signal", task_id, "approved", "yes").output
    db.execute("UPDATE tasks SET state = 'cancelled', completed_at = now()")
    result = run("signal", task_id, "approved")
    assert result.exit_code == 1
    assert "is finished" in result.output


def test_show_and_explain_say_what_a_durable_task_waits_for(run: Run, db: psycopg.Connection) -> None:
    waits, sleeps = suspended(db, "approved", "refused"), suspended(db)
    shown = run("show", waits).stdout
    assert "the signal 'approved' or 'refused'" in shown
    assert "charge" in shown
    explained = run("explain", waits).stdout
    assert "It waits for one of the signals 'approved' or 'refused'. It has 1 step on record." in explained
    assert f"tasklib signal {waits} approved" in explained
    assert "the end of its sleep" in run("show", sleeps).stdout
    assert "It sleeps until" in run("explain", sleeps).stdout

"""A task that keeps taking its process down is given up as poison, and says so with its whole history."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tasklib import Config
from tasklib.db.database import Database
from tasklib.store import claim, control, fleet, maintenance, settle
from tasklib.store.claim import Served
from tasklib.store.settle import Failure, Lease

TERMS: dict[str, Any] = {"lease_seconds": 600, "medium_after": 600, "high_after": 1200}
LIMIT = 3


@pytest.fixture
def database(config: Config) -> Any:
    database = Database(config)
    yield database
    database.close()


def fail(database: Database, db: psycopg.Connection, error: str, outcome: str, *, crashed: bool) -> None:
    """Claim the task, and let the attempt fail."""
    db.execute("UPDATE tasks SET next_retry_at = now() WHERE state = 'failed'")
    [task] = database.run(claim.claim(Served(["bomb"]), 1, "w-1", **TERMS))
    failure = Failure(Lease(task.id, task.token), error, outcome, 0.0, crashed=crashed)
    database.run(settle.fail([failure], "w-1", LIMIT))


def crash_child(database: Database, db: psycopg.Connection, *, crashed: bool = True) -> None:
    """Claim the task, and let the child that runs it die."""
    fail(database, db, "WorkerLost: the child process died (signal 9)\n", "crash", crashed=crashed)


def crash_worker(database: Database, db: psycopg.Connection) -> None:
    """Claim the task, begin it, and let the whole worker die."""
    db.execute("UPDATE tasks SET next_retry_at = now() WHERE state = 'failed'")
    [task] = database.run(claim.claim(Served(["bomb"]), 1, "w-1", **TERMS))
    database.run(settle.begin([(task, False)], "w-1"))
    db.execute("UPDATE tasks SET locked_until = now() - interval '1 s'")
    term = database.run(fleet.lead("leader", 60))
    assert term is not None
    database.run(maintenance.rescue(term, LIMIT, 10))


def row(db: psycopg.Connection) -> tuple[Any, ...]:
    return db.execute("SELECT state, crash_count, error, history FROM tasks").fetchall()[0]


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        (crash_child, "WorkerLost: the child process died (signal 9); given up as poison after 3 crashes"),
        (crash_worker, "worker w-1 was lost in attempt 3; given up as poison after 3 crashes"),
    ],
    ids=["child", "worker"],
)
def test_task_given_up_at_the_crash_limit_says_so_below_its_earlier_attempts(
    last: Any, verdict: str, database: Database, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO tasks (name, max_retries) VALUES ('bomb', 10)")
    crash_child(database, db)
    crash_worker(database, db)
    state, crashes, error, _ = row(db)
    assert (state, crashes, error) == ("failed", 2, "worker w-1 was lost in attempt 2")
    last(database, db)
    state, crashes, error, history = row(db)
    assert (state, crashes) == ("dead_letter", 3)
    assert error.splitlines() == [
        f"attempt 1, {history[0]['ended_at']}, crash, worker w-1: WorkerLost: the child process died (signal 9)",
        f"attempt 2, {history[1]['ended_at']}, lost, worker w-1: worker w-1 was lost in attempt 2",
        verdict,
    ]
    assert [entry["attempt"] for entry in history] == [1, 2, 3], "every attempt has its number"
    assert verdict.startswith(history[2]["error"].strip()), "an entry is about its own attempt"


def test_replay_is_among_the_earlier_attempts_of_a_task_that_is_poison_again(
    database: Database, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO tasks (name, crash_count) VALUES ('bomb', 2)")
    crash_child(database, db)
    database.run(control.replay(db.execute("SELECT id FROM tasks").fetchall()[0][0], by="test"))
    db.execute("UPDATE tasks SET crash_count = 2")
    crash_child(database, db)
    _, _, error, history = row(db)
    assert error.splitlines()[1] == (
        f"{history[1]['ended_at']}, replayed: "
        "WorkerLost: the child process died (signal 9); given up as poison after 3 crashes"
    )
    assert len(error.splitlines()) == 3


def test_error_of_a_poison_task_is_bounded_however_many_and_long_its_attempts(
    database: Database, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO tasks (name, max_retries, crash_count) VALUES ('bomb', 100, 2)")
    for n in range(60):
        fail(database, db, f"Traceback ...\n{n} {'long ' * 10_000}", "error", crashed=False)
    crash_worker(database, db)
    _, _, error, history = row(db)
    lines = error.splitlines()
    assert [line.partition(",")[0] for line in lines[:-1]] == [f"attempt {n}" for n in range(43, 63)]
    assert lines[-1] == "worker w-1 was lost in attempt 63; given up as poison after 3 crashes"
    assert len(error) < 20 * 400
    assert len(history) == 50


@pytest.mark.parametrize("history", ["null", "7", '"text"', "{}", "[]", '[1, null, "x", [], {"error": 5}]'])
def test_history_that_was_changed_by_hand_stops_no_recovery(
    history: str, database: Database, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO tasks (name, crash_count, history) VALUES ('bomb', 2, %s)", (history,))
    crash_worker(database, db)
    state, _, error, _ = row(db)
    assert state == "dead_letter"
    assert error.endswith("worker w-1 was lost in attempt 3; given up as poison after 3 crashes")


@pytest.mark.parametrize("crash", [crash_child, crash_worker], ids=["child", "worker"])
def test_task_cancelled_while_it_crashed_for_the_last_time_is_cancelled_not_poison(
    crash: Any, database: Database, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO tasks (name, crash_count, cancel_requested_at) VALUES ('bomb', 2, now())")
    crash(database, db)
    state, crashes, error, _ = row(db)
    assert (state, crashes) == ("cancelled", 3)
    assert "poison" not in error


def test_failure_that_is_no_crash_is_not_called_poison(database: Database, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO tasks (name, max_retries, crash_count) VALUES ('bomb', 0, 5)")
    crash_child(database, db, crashed=False)
    state, crashes, error, _ = row(db)
    assert (state, crashes) == ("dead_letter", 5)
    assert "poison" not in error


def test_poison_of_different_workers_and_histories_has_one_fingerprint(
    database: Database, db: psycopg.Connection
) -> None:
    for worker in ("web-1-77-cafe0001", "batch-22-beefbeef"):
        history = json.dumps([{"attempt": 1, "outcome": "error", "error": f"ValueError: said {worker}"}])
        db.execute("INSERT INTO tasks (name, max_retries, crash_count, history) VALUES ('bomb', 9, 2, %s)", (history,))
        [task] = database.run(claim.claim(Served(["bomb"]), 1, worker, **TERMS))
        database.run(settle.begin([(task, False)], worker))
        db.execute("UPDATE tasks SET locked_until = now() - interval '1 s' WHERE state = 'running'")
        term = database.run(fleet.lead("leader", 60))
        assert term is not None
        database.run(maintenance.rescue(term, LIMIT, 10))
    assert db.execute("SELECT count(DISTINCT split_part(error, E'\\n', 1)) FROM tasks").fetchone() == (2,)
    found = db.execute("SELECT tasklib_fingerprint(name, error), count(*) FROM tasks GROUP BY 1").fetchall()
    assert [count for _, count in found] == [2]

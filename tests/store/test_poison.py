"""A task that keeps taking its process down is given up as poison, and says so with its whole history."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tasklib import Config
from tasklib.db.database import Database
from tasklib.store import claim, fleet, settle, upkeep
from tasklib.store.claim import Served
from tasklib.store.settle import Failure, Lease

TERMS: dict[str, Any] = {"lease_seconds": 600, "medium_after": 600, "high_after": 1200}
LIMIT = 3


@pytest.fixture
def database(config: Config) -> Any:
    database = Database(config)
    yield database
    database.close()


def crash_child(database: Database, db: psycopg.Connection, *, crashed: bool = True) -> None:
    """Claim the task, and let the child that runs it die."""
    db.execute("UPDATE tasks SET next_retry_at = now() WHERE state = 'failed'")
    [task] = database.run(claim.claim(Served(["bomb"]), 1, "w-1", **TERMS))
    error = "WorkerLost: the child process died (signal 9)\n"
    database.run(settle.fail([Failure(Lease(task.id, task.token), error, "lost", 0.0, crashed=crashed)], LIMIT))


def crash_worker(database: Database, db: psycopg.Connection) -> None:
    """Claim the task, and let the whole worker die."""
    db.execute("UPDATE tasks SET next_retry_at = now() WHERE state = 'failed'")
    database.run(claim.claim(Served(["bomb"]), 1, "w-1", **TERMS))
    db.execute("UPDATE tasks SET locked_until = now() - interval '1 s'")
    term = database.run(fleet.lead("leader", 60))
    assert term is not None
    database.run(upkeep.rescue(term, LIMIT, 10))


def row(db: psycopg.Connection) -> tuple[Any, ...]:
    return db.execute("SELECT state, crash_count, error, history FROM tasks").fetchall()[0]


@pytest.mark.parametrize("last", [crash_child, crash_worker], ids=lambda f: f.__name__)
def test_task_given_up_at_the_crash_limit_says_so_and_keeps_its_history(
    last: Any, database: Database, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO tasks (name, max_retries) VALUES ('bomb', 10)")
    crash_child(database, db)
    crash_worker(database, db)
    state, crashes, error, _ = row(db)
    assert (state, crashes) == ("failed", 2)
    assert "poison" not in error
    last(database, db)
    state, crashes, error, history = row(db)
    assert (state, crashes) == ("dead_letter", 3)
    assert error.endswith("; given up as poison after 3 crashes")
    assert [entry["attempt"] for entry in history] == [1, 2, 3]
    assert history[-1]["error"] == error
    assert "died" in history[0]["error"]


def test_failure_that_is_no_crash_is_not_called_poison(database: Database, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO tasks (name, max_retries, crash_count) VALUES ('bomb', 0, 5)")
    crash_child(database, db, crashed=False)
    state, crashes, error, _ = row(db)
    assert (state, crashes) == ("dead_letter", 5)
    assert "poison" not in error


def test_poison_of_different_workers_has_one_fingerprint(database: Database, db: psycopg.Connection) -> None:
    for worker in ("web-1-77-cafe0001", "batch-22-beefbeef"):
        db.execute("INSERT INTO tasks (name, max_retries, crash_count) VALUES ('bomb', 9, 2)")
        [_] = database.run(claim.claim(Served(["bomb"]), 1, worker, **TERMS))
        db.execute("UPDATE tasks SET locked_until = now() - interval '1 s' WHERE state = 'running'")
        term = database.run(fleet.lead("leader", 60))
        assert term is not None
        database.run(upkeep.rescue(term, LIMIT, 10))
    found = db.execute("SELECT tasklib_fingerprint(name, error), count(*) FROM tasks GROUP BY 1").fetchall()
    assert [count for _, count in found] == [2]

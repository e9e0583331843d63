"""The tasks of a lost worker: those that may have begun count a crash, the others go back as they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tasklib import Config
from tasklib.db.database import Database
from tasklib.store import claim, fleet, maintenance, settle
from tasklib.store.claim import Claimed, Served
from tasklib.store.settle import Failure, Lease

TERMS: dict[str, Any] = {"lease_seconds": 600, "medium_after": 600, "high_after": 1200}
LIMIT = 3
AS_BEFORE = "state, retry_count, crash_count, timeout_seconds, next_retry_at, started_at, error, history"


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    database = Database(config)
    yield database
    database.close()


def register(database: Database, capacity: int, id_: str = "w") -> None:
    me = {"queues": None, "names": [], "capabilities": [], "version": "", "host": "", "pid": 0}
    database.run(fleet.register(id_, capacity=capacity, heartbeat_timeout=90.0, **me))  # type: ignore[arg-type]


def take(database: Database, limit: int = 100, worker: str = "w") -> list[Claimed]:
    return database.run(claim.claim(Served(["work", "other"]), limit, worker, **TERMS))


def rescue(database: Database, db: psycopg.Connection, batch: int = 500, worker: str = "w") -> list[str]:
    """The worker is dead: end its attempts. The states of those ended, in the order of their ids."""
    db.execute("UPDATE worker_registrations SET reported_status = 'dead' WHERE id = %s", (worker,))
    db.execute(
        "UPDATE tasks SET locked_until = now() - interval '1 s' WHERE worker_id = %s AND state = 'running'", (worker,)
    )
    term = database.run(fleet.lead("leader", 60))
    assert term is not None
    ended: dict[str, str] = {}
    while found := database.run(maintenance.rescue(term, LIMIT, batch)):
        ended |= {id_: state for id_, _, state in found}
    return [ended[id_] for id_ in sorted(ended)]


def overdue(database: Database, db: psycopg.Connection) -> list[str]:
    db.execute("UPDATE tasks SET started_at = started_at - interval '1 hour', timeout_seconds = 10")
    term = database.run(fleet.lead("leader", 60))
    assert term is not None
    return sorted(state for _, _, state in database.run(maintenance.fail_overdue(term, 30, 5, 100)))


def begin(database: Database, task: Claimed, *, at_most_once: bool = False, worker: str = "w") -> bool:
    return bool(database.run(settle.begin([(task, at_most_once)], worker)))


def rows(db: psycopg.Connection, columns: str) -> list[tuple[Any, ...]]:
    return db.execute(f"SELECT {columns} FROM tasks ORDER BY id").fetchall()  # type: ignore[call-overload]


def test_tasks_beyond_what_the_lost_worker_may_have_begun_go_back_as_they_were(
    database: Database, db: psycopg.Connection
) -> None:
    register(database, capacity=2)
    db.execute("INSERT INTO tasks (name, timeout_seconds, max_retries) SELECT 'work', 10, 0 FROM generate_series(1, 5)")
    before = rows(db, AS_BEFORE)
    take(database, 3)
    take(database, 2)
    assert rescue(database, db) == ["failed", "failed", "pending", "pending", "pending"]
    after = rows(db, AS_BEFORE)
    assert after[2:] == before[2:]
    assert [(retries, crashes, timeout) for _, retries, crashes, timeout, *_ in after[:2]] == [(0, 1, 15)] * 2
    assert [history[0]["outcome"] for *_, history in after[:2]] == ["lost"] * 2


def test_a_retry_that_had_not_begun_keeps_its_moment_and_its_error(database: Database, db: psycopg.Connection) -> None:
    register(database, capacity=1)
    db.execute("INSERT INTO tasks (name) VALUES ('work')")
    db.execute(
        "INSERT INTO tasks (name, state, retry_count, next_retry_at, error) "
        "VALUES ('work', 'failed', 2, now(), 'earlier')"
    )
    before = rows(db, AS_BEFORE)
    take(database)
    assert rescue(database, db) == ["failed", "failed"]
    assert rows(db, AS_BEFORE)[1] == before[1]


def test_the_order_of_a_claim_is_by_effective_priority_then_due_across_names(
    database: Database, db: psycopg.Connection
) -> None:
    register(database, capacity=3)
    for name, priority, age in [
        ("work", 0, 30),
        ("other", 0, 40),
        ("work", 100, 0),
        ("other", -10, 50),
        ("work", 0, 20),
    ]:
        db.execute(
            "INSERT INTO tasks (name, priority, scheduled_at) VALUES (%s, %s, now() - make_interval(secs => %s))",
            (name, priority, age),
        )
    begun = [task.id for task in take(database)][:3]
    rescue(database, db)
    found = db.execute("SELECT id::text FROM tasks WHERE crash_count = 1").fetchall()
    assert {id_ for (id_,) in found} == set(begun)


def test_the_same_tasks_count_as_begun_however_small_the_batches_of_the_rescue(
    database: Database, db: psycopg.Connection
) -> None:
    register(database, capacity=4)
    db.execute("INSERT INTO tasks (name) SELECT 'work' FROM generate_series(1, 20)")
    take(database)
    rescue(database, db, batch=3)
    assert [crashes for (crashes,) in rows(db, "crash_count")] == [1] * 4 + [0] * 16


@pytest.mark.parametrize("is_registered", [True, False], ids=["with no number on record", "that is forgotten"])
def test_a_worker_whose_order_is_not_known_may_have_begun_everything(
    database: Database, db: psycopg.Connection, is_registered: bool
) -> None:
    if is_registered:
        register(database, capacity=1)
        database.run(fleet.may_begin("w", None))
    db.execute("INSERT INTO tasks (name) SELECT 'work' FROM generate_series(1, 3)")
    take(database)
    rescue(database, db)
    assert [crashes for (crashes,) in rows(db, "crash_count")] == [1] * 3


def test_tasks_whose_results_are_stored_make_room_for_those_behind_them(
    database: Database, db: psycopg.Connection
) -> None:
    register(database, capacity=2)
    db.execute("INSERT INTO tasks (name) SELECT 'work' FROM generate_series(1, 5)")
    first, *_ = take(database)
    database.run(settle.complete([settle.Completion(first, "1")], "w"))
    rescue(database, db)
    assert [crashes for (crashes,) in rows(db, "crash_count")] == [0, 1, 1, 0, 0]


def test_only_the_tasks_of_the_lost_worker_are_counted(database: Database, db: psycopg.Connection) -> None:
    register(database, capacity=1)
    register(database, capacity=1, id_="alive")
    db.execute("INSERT INTO tasks (name) SELECT 'work' FROM generate_series(1, 4)")
    take(database, 2, "alive")
    take(database, 2)
    rescue(database, db)
    assert rows(db, "state, crash_count") == [("running", 0), ("running", 0), ("failed", 1), ("pending", 0)]


def test_a_live_worker_that_lost_one_lease_keeps_the_others_though_another_worker_is_dead(
    database: Database, db: psycopg.Connection
) -> None:
    register(database, capacity=2, id_="alive")
    register(database, capacity=1)
    db.execute("INSERT INTO tasks (name) SELECT 'work' FROM generate_series(1, 3)")
    kept, lost = take(database, 2, "alive")
    take(database, 1)
    db.execute("UPDATE tasks SET locked_until = now() - interval '1 s' WHERE id = %s", [lost.id])
    rescue(database, db)
    assert db.execute("SELECT id::text FROM tasks WHERE state = 'running'").fetchall() == [(kept.id,)]


def test_a_task_that_crashed_before_counts_another_crash_only_if_its_beginning_is_on_record(
    database: Database, db: psycopg.Connection
) -> None:
    register(database, capacity=2)
    db.execute("INSERT INTO tasks (name, crash_count) SELECT 'work', 1 FROM generate_series(1, 2)")
    _, second = take(database)
    assert begin(database, second)
    assert rescue(database, db) == ["pending", "failed"]
    assert rows(db, "crash_count") == [(1,), (2,)]


def test_a_task_is_given_up_as_poison_only_if_the_beginning_of_its_last_attempt_is_on_record(
    database: Database, db: psycopg.Connection
) -> None:
    register(database, capacity=1)
    db.execute("INSERT INTO tasks (name, crash_count) VALUES ('work', 2)")
    for _ in range(5):
        register(database, capacity=1)
        take(database)
        assert rescue(database, db) == ["pending"]
        db.execute("DELETE FROM worker_registrations")
    assert rows(db, "crash_count, retry_count") == [(2, 0)]
    [task] = take(database)
    assert begin(database, task)
    assert rescue(database, db) == ["dead_letter"]


def test_a_beginning_on_record_is_that_of_one_attempt(database: Database, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO tasks (name, crash_count) VALUES ('work', 2)")
    [task] = take(database)
    assert begin(database, task)
    database.run(settle.release([task], "w"))
    take(database)
    assert rescue(database, db) == ["pending"]


def test_a_task_cancelled_before_it_began_is_cancelled_when_its_worker_is_lost(
    database: Database, db: psycopg.Connection
) -> None:
    register(database, capacity=1)
    db.execute("INSERT INTO tasks (name) SELECT 'work' FROM generate_series(1, 2)")
    take(database)
    db.execute("UPDATE tasks SET cancel_requested_at = now()")
    assert rescue(database, db) == ["cancelled", "cancelled"]
    assert rows(db, "crash_count") == [(1,), (0,)]


@pytest.mark.parametrize("change", ["lease_token = lease_token + 1", "worker_id = 'thief'", "locked_until = now()"])
def test_nothing_begins_under_a_lease_that_is_gone(database: Database, db: psycopg.Connection, change: str) -> None:
    db.execute("INSERT INTO tasks (name) VALUES ('work')")
    [task] = take(database)
    db.execute(f"UPDATE tasks SET {change}")  # type: ignore[call-overload]
    assert not begin(database, task)
    assert rows(db, "begun_token") == [(None,)]


def test_recording_a_beginning_twice_is_the_same_as_once(database: Database, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO tasks (name) VALUES ('work')")
    [task] = take(database)
    assert begin(database, task, at_most_once=True)
    assert begin(database, task, at_most_once=True)
    assert rows(db, "begun_token, at_most_once") == [(1, True)]


# ---- at most once


def test_a_task_at_most_once_that_had_begun_is_a_dead_letter_that_says_why(
    database: Database, db: psycopg.Connection
) -> None:
    register(database, capacity=5)
    db.execute("INSERT INTO tasks (name, max_retries) VALUES ('work', 3)")
    [task] = take(database)
    assert begin(database, task, at_most_once=True)
    assert rescue(database, db) == ["dead_letter"]
    [(error, retries)] = rows(db, "error, retry_count")
    assert error == (
        "worker w was lost in attempt 1, after it had begun. The task runs at most once, so it is not retried"
    )
    assert retries == 0


def test_a_task_at_most_once_that_fails_is_a_dead_letter_whatever_its_row_says_of_retries(
    database: Database, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO tasks (name, max_retries) VALUES ('work', 3)")
    [task] = take(database)
    assert begin(database, task, at_most_once=True)
    failure = Failure(Lease(task.id, task.token), "ValueError: no", "error", 0.0)
    assert database.run(settle.fail([failure], "w", LIMIT)) == {task.id: "dead_letter"}


def test_a_task_at_most_once_that_has_begun_cant_be_given_back(database: Database, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO tasks (name) SELECT 'work' FROM generate_series(1, 2)")
    begun, waiting = take(database)
    assert begin(database, begun, at_most_once=True)
    assert database.run(settle.release([begun, waiting], "w")) == {waiting.id: "pending"}


# ---- a crash of the process, and a worker that does not act


def test_a_lost_process_counts_as_a_crash_and_uses_no_retry(database: Database, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO tasks (name, max_retries, timeout_seconds) VALUES ('work', 0, 10)")
    [task] = take(database)
    failure = Failure(Lease(task.id, task.token), "WorkerLost: died", "crash", 0.0, crashed=True, more_time=True)
    assert database.run(settle.fail([failure], "w", LIMIT)) == {task.id: "failed"}
    assert rows(db, "retry_count, crash_count, timeout_seconds") == [(0, 1, 15)]


def test_an_overdue_attempt_is_the_functions_failure_only_if_its_beginning_is_on_record(
    database: Database, db: psycopg.Connection
) -> None:
    register(database, capacity=2)
    db.execute("INSERT INTO tasks (name, max_retries) SELECT 'work', 0 FROM generate_series(1, 3)")
    first, *_ = take(database)
    assert begin(database, first)
    assert overdue(database, db) == ["dead_letter", "failed", "pending"]
    assert rows(db, "state, retry_count, crash_count") == [("dead_letter", 0, 0), ("failed", 0, 1), ("pending", 0, 0)]


def test_an_overdue_task_at_most_once_that_had_begun_is_a_dead_letter_whatever_its_row_says_of_retries(
    database: Database, db: psycopg.Connection
) -> None:
    register(database, capacity=1)
    db.execute("INSERT INTO tasks (name, max_retries) VALUES ('work', 3)")
    [task] = take(database)
    assert begin(database, task, at_most_once=True)
    assert overdue(database, db) == ["dead_letter"]


def test_of_a_wedged_workers_tasks_only_those_past_their_own_timeout_are_ended(
    database: Database, db: psycopg.Connection
) -> None:
    register(database, capacity=2)
    db.execute("INSERT INTO tasks (name) SELECT 'work' FROM generate_series(1, 2)")
    first, second = take(database)
    assert begin(database, first)
    assert begin(database, second)
    db.execute(
        "UPDATE tasks SET timeout_seconds = 10, started_at = CASE WHEN id = %s THEN now() - interval '1 h' "
        "ELSE now() END",
        [first.id],
    )
    term = database.run(fleet.lead("leader", 60))
    assert term is not None
    assert [id_ for id_, _, _ in database.run(maintenance.fail_overdue(term, 30, 5, 100))] == [first.id]

"""A cancel and the end of an attempt at the same moment: exactly one of them counts, and neither is lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tasklib import Client, Config, TaskState
from tasklib.db.database import Database, execute
from tasklib.db.query import Query
from tasklib.store import claim, control, settle
from tasklib.store.claim import Claimed, Served
from tasklib.store.settle import Completion, Failure, Lease

TERMS: dict[str, Any] = {"lease_seconds": 600, "medium_after": 600, "high_after": 1200}
S = TaskState


def complete(lease: Lease) -> Query[Any]:
    return settle.complete([Completion(lease, '{"value": 1}')], "w")


def fail(lease: Lease) -> Query[Any]:
    return settle.fail([Failure(lease, "boom", "error", 5.0)], "w", 3)


def release(lease: Lease) -> Query[Any]:
    return settle.release([lease], "w")


Ending = Callable[[Lease], Query[Any]]
ENDINGS: list[tuple[Ending, TaskState]] = [(complete, S.COMPLETED), (fail, S.CANCELLED), (release, S.CANCELLED)]


class Session:
    """A transaction of its own, each step in a thread of its own, so that a step may wait for another session."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url)
        self._thread = ThreadPoolExecutor(1)

    def run(self, query: Query[Any]) -> Future[Any]:
        return self._thread.submit(execute, self.connection, query, None)

    def commit(self) -> None:
        self._thread.submit(self.connection.commit).result(120)

    def close(self) -> None:
        self._thread.shutdown()
        self.connection.close()


@pytest.fixture
def sessions(database_url: str) -> Any:
    pair = Session(database_url), Session(database_url)
    yield pair
    for session in pair:
        session.close()


@pytest.fixture
def running(config: Config, db: psycopg.Connection) -> Lease:
    """One task that is leased."""
    db.execute("INSERT INTO tasks (name) VALUES ('work')")
    [task] = claim_all(config, 1)
    return Lease(task.id, task.token)


def claim_all(config: Config, limit: int) -> list[Claimed]:
    database = Database(config)
    found = database.run(claim.claim(Served(["work"]), limit, "w", **TERMS))
    database.close()
    return found


def wait_for_a_waiter(db: psycopg.Connection, step: Future[Any]) -> None:
    while not db.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchall()[0][0]:
        assert not step.done(), "it had to wait for the other session"


def state(db: psycopg.Connection) -> TaskState:
    return TaskState(db.execute("SELECT state FROM tasks").fetchall()[0][0])


@pytest.mark.parametrize(("ending", "expected"), ENDINGS, ids=[e.__name__ for e, _ in ENDINGS])
def test_cancel_first_then_the_attempt_ends(
    sessions: tuple[Session, Session], running: Lease, db: psycopg.Connection, ending: Ending, expected: TaskState
) -> None:
    canceller, worker = sessions
    assert canceller.run(control.cancel(UUID(running.id), by="test")).result(120) == S.RUNNING
    ended = worker.run(ending(running))
    if ending is complete:
        wait_for_a_waiter(db, ended)
        canceller.commit()
        ended.result(120)
    else:
        assert not ended.result(120), "the row is locked: it is left out, and tried again"
        canceller.commit()
        assert worker.run(ending(running)).result(120)
    worker.commit()
    assert state(db) == expected, "what was done is done; what was not is cancelled, and not tried again"


@pytest.mark.parametrize(("ending", "_expected"), ENDINGS, ids=[e.__name__ for e, _ in ENDINGS])
def test_the_attempt_ends_first_then_cancel(
    sessions: tuple[Session, Session], running: Lease, db: psycopg.Connection, ending: Ending, _expected: TaskState
) -> None:
    canceller, worker = sessions
    worker.run(ending(running)).result(120)
    asked = canceller.run(control.cancel(UUID(running.id), by="test"))
    wait_for_a_waiter(db, asked)
    worker.commit()
    answer = asked.result(120)
    canceller.commit()
    if ending is complete:
        assert (answer, state(db)) == (None, S.COMPLETED)
    else:
        assert (answer, state(db)) == (S.CANCELLED, S.CANCELLED), "it waited again, so it is cancelled at once"


def test_cancel_first_then_claim_gets_nothing(sessions: tuple[Session, Session], db: psycopg.Connection) -> None:
    canceller, worker = sessions
    row = db.execute("INSERT INTO tasks (name) VALUES ('work') RETURNING id").fetchall()[0]
    assert canceller.run(control.cancel(row[0], by="test")).result(120) == S.CANCELLED
    assert worker.run(claim.claim(Served(["work"]), 1, "w", **TERMS)).result(120) == [], "locked rows are passed over"
    canceller.commit()
    worker.commit()
    assert worker.run(claim.claim(Served(["work"]), 1, "w", **TERMS)).result(120) == []


def test_claim_first_then_cancel_asks_the_worker(sessions: tuple[Session, Session], db: psycopg.Connection) -> None:
    canceller, worker = sessions
    row = db.execute("INSERT INTO tasks (name) VALUES ('work') RETURNING id").fetchall()[0]
    [task] = worker.run(claim.claim(Served(["work"]), 1, "w", **TERMS)).result(120)
    asked = canceller.run(control.cancel(row[0], by="test"))
    wait_for_a_waiter(db, asked)
    worker.commit()
    assert asked.result(120) == S.RUNNING
    canceller.commit()
    requests = worker.run(control.cancel_requests([Lease(task.id, task.token)]))
    assert requests.result(120) == {task.id}


@pytest.mark.parametrize("how", ["one by one", "all that fit"])
def test_hundreds_of_cancels_and_completions_at_once_end_each_task_once(
    how: str, config: Config, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO tasks (name, max_retries) SELECT 'work', n % 2 FROM generate_series(1, 400) AS n")
    claimed = claim_all(config, 300)
    chance = random.Random(how)
    done: set[str] = set()
    gate = threading.Barrier(3)

    def settle_all(tasks: list[Claimed], ending: Ending) -> None:
        database = Database(config)
        gate.wait(120)
        while tasks:
            batch = [Lease(t.id, t.token) for t in tasks[:7]]
            del tasks[:7]
            if ending is complete:
                done.update(database.run(settle.complete([Completion(lease, "{}") for lease in batch], "w")))
            else:
                while batch:  # what a cancel has locked just now is tried again, as a worker does
                    database.run(settle.fail([Failure(lease, "boom", "error", 3600.0) for lease in batch], "w", 3))
                    held = database.run(settle.still_held(batch, "w"))
                    batch = [lease for lease in batch if lease.id in held]
        database.close()

    def cancel_all() -> None:
        with Client(config) as client:
            gate.wait(120)
            if how == "all that fit":
                client.cancel_tasks(name="work")
                return
            for task_id in ids:
                client.cancel_task(task_id)

    ids = [row[0] for row in db.execute("SELECT id FROM tasks")]
    chance.shuffle(ids)
    half = len(claimed) // 2
    with ThreadPoolExecutor(3) as threads:
        for finished in [
            threads.submit(settle_all, claimed[:half], complete),
            threads.submit(settle_all, claimed[half:], fail),
            threads.submit(cancel_all),
        ]:
            finished.result(60)
    ended: dict[str, set[str]] = {}
    for state_, id_ in db.execute("SELECT state, id::text FROM tasks"):
        ended.setdefault(state_, set()).add(id_)
    assert ended.keys() <= {"completed", "cancelled", "dead_letter"}, "nothing waits or runs any more"
    assert ended.get("completed", set()) == done, "acknowledged completions, and no others"
    assert ended["cancelled"] >= {str(i) for i in ids} - {t.id for t in claim_order(db)} - done
    assert sum(map(len, ended.values())) == 400


def claim_order(db: psycopg.Connection) -> list[Any]:
    """The tasks that were ever leased."""
    with db.cursor(row_factory=psycopg.rows.namedtuple_row) as cursor:
        return cursor.execute("SELECT id::text AS id FROM tasks WHERE lease_token > 0").fetchall()

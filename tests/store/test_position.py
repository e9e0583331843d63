"""Where a task stands in line: the same as the order of claims says, at a bounded cost."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given

from tasklib.sql import statement
from tasklib.store import explain
from tasklib.store.claim import Served
from tasklib.store.explain import COUNT_UP_TO, Position
from tests.store.test_claim import insert, rows_read, scans_of_tasks
from tests.store.test_order import Queue, Scene, Task, Waiting, playing, queue, scenes

__all__ = ["queue"]  # a fixture

TERMS = {"medium_after": 600.0, "high_after": 1200.0}


def position_of(connection: psycopg.Connection, task_id: UUID, **terms: float) -> Position | None:
    query = explain.position(task_id, **{**TERMS, **terms})
    return query.read(connection.execute(statement(query.name, None).encode(), query.parameters).fetchall())


def add_worker(connection: psycopg.Connection, served: Served, id_: str = "w", **columns: Any) -> None:
    values = {
        "id": id_,
        "names": list(served.names),
        "queues": list(served.queues) if served.queues is not None else None,
        "capabilities": list(served.capabilities),
        **columns,
    }
    names, marks = ", ".join(values), ", ".join(f"%({c})s" for c in values)
    connection.execute(f"INSERT INTO workers ({names}) VALUES ({marks})".encode(), values)


@playing
@given(scenes())
def test_as_many_are_ahead_of_a_task_as_the_order_of_claims_puts_before_it(queue: Queue, scene: Scene) -> None:
    medium, high = scene.configured
    with queue.connection.transaction(force_rollback=True):
        tasks = queue.fill(scene)
        add_worker(queue.connection, scene.served)
        line = sorted((scene.rank(Task(t, id_)), id_) for id_, t in tasks.items() if scene.may_take(t))
        for place, (_, id_) in enumerate(line[:10]):
            before = [i for _, i in line[:place] if tasks[i].queue == tasks[id_].queue]
            found = position_of(queue.connection, id_, medium_after=medium, high_after=high)
            assert found is not None
            assert (found.ahead, found.workers) == (len(before), 1)


def test_only_what_fitting_workers_would_take_is_ahead(queue: Queue) -> None:
    old, new = timedelta(seconds=60), timedelta(seconds=30)
    tasks = [
        Waiting("q", "ours", ("gpu",), 0, new),
        Waiting("q", "ours", (), 0, old),
        Waiting("q", "theirs", (), 0, old),
        Waiting("q", "ours", ("fpga",), 0, old),
        Waiting("elsewhere", "ours", (), 0, old),
        Waiting("q", "ours", (), 0, timedelta(seconds=-60)),
    ]
    with queue.connection.transaction(force_rollback=True):
        ids = list(queue.fill(Scene(tasks, Served([]))))
        nobody = position_of(queue.connection, ids[0])
        add_worker(queue.connection, Served(["ours"], None, ["gpu"]), "fits", capacity=4)
        add_worker(queue.connection, Served(["ours", "theirs"]), "has no gpu")
        add_worker(queue.connection, Served(["ours", "theirs"], None, ["gpu"]), "leaves", reported_status="draining")
        add_worker(queue.connection, Served(["ours", "theirs"], None, ["gpu"]), "dead", reported_status="dead")
        add_worker(queue.connection, Served(["ours", "theirs"], ["elsewhere"], ["gpu"]), "not here")
        somebody = position_of(queue.connection, ids[0])
    assert nobody == Position(3, False, 0, 0, None), "while nobody fits, the whole queue is ahead"
    assert somebody == Position(1, False, 1, 4, None)


@pytest.fixture
def waiting(db: psycopg.Connection) -> psycopg.Connection:
    db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
    add_worker(db, Served(["work"]), capacity=10)
    return db


def the_last(db: psycopg.Connection) -> UUID:
    row = db.execute("SELECT id FROM tasks WHERE state = 'pending' ORDER BY scheduled_at DESC, id DESC").fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def test_eta_comes_from_what_the_tasks_before_it_took(waiting: psycopg.Connection) -> None:
    insert(waiting, 20, name="'work'", state="'completed'", started_at="now() - interval '4 s'", completed_at="now()")
    insert(
        waiting,
        15,
        name="'other'",
        queue="'x'",
        state="'completed'",
        started_at="now() - '1 h'::interval",
        completed_at="now()",
    )
    insert(waiting, 600, name="'work'", scheduled_at="now() - interval '1 s' + n * interval '1 ms'")
    position = position_of(waiting, the_last(waiting))
    assert position is not None
    assert (position.ahead, position.number, position.slots) == (599, 600, 10)
    assert position.average_seconds == pytest.approx(4)
    assert position.eta_seconds == pytest.approx(600 * 4 / 10)


def test_eta_is_unknown_without_tasks_that_ended_lately(waiting: psycopg.Connection) -> None:
    old = "now() - interval '2 h'"
    insert(waiting, 20, name="'work'", state="'completed'", started_at=old, completed_at=old)
    insert(waiting, 2, name="'work'")
    position = position_of(waiting, the_last(waiting))
    assert position is not None
    assert (position.ahead, position.average_seconds, position.eta_seconds) == (1, None, None)


def plan_of(db: psycopg.Connection, task_id: UUID) -> dict[str, Any]:
    query = explain.position(task_id, **TERMS)
    text = "EXPLAIN (ANALYZE, FORMAT JSON) " + statement(query.name, None)
    row = db.execute(text.encode(), query.parameters).fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


@pytest.mark.long
def test_position_reads_a_bounded_number_of_rows_whatever_lies_beside(waiting: psycopg.Connection) -> None:
    insert(waiting, 200_000, name="'work'", state="'completed'", started_at="now()", completed_at="now()")
    insert(waiting, 30_000, name="'unknown'", priority="100", scheduled_at="now() - interval '1 h'", lane="'unknown'")
    insert(waiting, 30_000, name="'work'", priority="100", scheduled_at="now() + interval '1 h'")
    insert(waiting, 30_000, name="'work'", queue="'another'", scheduled_at="now() - interval '1 h'")
    insert(waiting, 50, name="'work'", scheduled_at="now() - interval '10 s' + n * interval '1 ms'")
    waiting.execute("ANALYZE tasks")
    last = next(
        waiting.execute(
            "SELECT id FROM tasks WHERE queue = 'default' AND priority = 0 AND state = 'pending' "
            "ORDER BY scheduled_at DESC"
        )
    )[0]

    plan = plan_of(waiting, last)
    for scan in scans_of_tasks(plan):
        assert scan["Node Type"] == "Index Scan", json.dumps(scan, indent=1)
    # The task, two samples, the lane's head, the line and a look per lane.
    assert rows_read(plan) <= 1 + 2 * 500 + 1 + 50 + 15
    position = position_of(waiting, last)
    assert position is not None
    assert position.ahead == 49


def test_counting_ends_at_its_limit_and_says_so(waiting: psycopg.Connection) -> None:
    insert(waiting, COUNT_UP_TO + 5000, name="'work'", priority="n % 2", scheduled_at="now() - interval '1 s'")
    waiting.execute("ANALYZE tasks")
    insert(waiting, 1, name="'work'", priority="-10")
    last = next(waiting.execute("SELECT id FROM tasks WHERE priority = -10"))[0]
    position = position_of(waiting, last)
    assert position is not None
    assert (position.ahead, position.is_capped) == (COUNT_UP_TO, True)
    assert rows_read(plan_of(waiting, last)) <= COUNT_UP_TO + 1100

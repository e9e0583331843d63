"""What really happens to flows is recorded, and the checker agrees with it: replays of completed tasks among others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

import tasklib
from proof.chaos.operator import Operator
from proof.chaos.run import _DOUBLED_MARKS
from proof.chaos.scene import Scene
from proof.history import recording
from proof.history.checker import Checker, End, lines
from proof.history.flows import FlowFigures, FlowHistory, check, flow_history
from tasklib import Client, Config, Schedule, chain, current_task, gather, step, task
from tasklib.db.database import Database
from tasklib.maintenance.schedules import decide
from tasklib.store import firing, fleet
from tasklib.testing import databases, drain
from tests.flows.rows import Rows

HOUR = timedelta(hours=1)
START = datetime(2026, 3, 28, 22, tzinfo=UTC)


@pytest.fixture
def database_url(server_url: str, template_database: str) -> Iterator[str]:
    """A database of this test's own: the triggers that record stay in it."""
    with databases.database(server_url, template_database) as url:
        with psycopg.connect(url, autocommit=True) as db:
            recording.install(db)
        yield url


@pytest.fixture(autouse=True)
def initialised(config: Config) -> None:
    tasklib.init(config)


@pytest.fixture
def client(config: Config) -> Iterator[Client]:
    with Client(config) as made:
        yield made


def history(db: psycopg.Connection) -> FlowHistory:
    return flow_history(db, transactional_steps=["ledger"])


def violations(db: psycopg.Connection) -> list[str]:
    return [f"{invariant}: {detail}" for invariant, detail in check(history(db), FlowFigures())]


async def ledger(connection: psycopg.AsyncConnection) -> None:
    await connection.execute("INSERT INTO step_ledger VALUES (%s, 'ledger')", (current_task().id,))


def declared() -> Any:
    """A durable function that writes a row and gathers two tasks."""

    @task(name="h.member")
    async def member(mark: str) -> str:
        return mark

    @task(name="h.parent", durable=True)
    async def parent(mark: str) -> list[str]:
        await step("ledger", ledger, transactional=True)
        return await gather([member.s(mark=f"{mark} {n}") for n in range(2)])

    return parent


def counts(db: psycopg.Connection) -> tuple[int, int]:
    """Rows that the transactional step left, and flows that were gathered."""
    ((rows, flows),) = db.execute("SELECT (SELECT count(*) FROM step_ledger), (SELECT count(*) FROM flows)").fetchall()
    return rows, flows


async def test_a_completed_task_that_is_replayed_writes_and_gathers_again_and_that_is_no_violation(
    client: Client, db: psycopg.Connection
) -> None:
    task_id = await declared().submit(mark="a")
    await drain()
    assert (counts(db), violations(db)) == ((1, 1), [])
    client.replay_task(task_id)
    await drain()
    assert (counts(db), violations(db)) == ((2, 2), [])
    assert db.execute(_DOUBLED_MARKS.encode()).fetchall() == []


async def test_a_step_or_a_gathered_flow_that_is_done_again_without_a_replay_is_flagged(db: psycopg.Connection) -> None:
    task_id = await declared().submit(mark="a")
    await drain()
    db.execute("DELETE FROM steps")
    db.execute("UPDATE tasks SET state = 'pending', completed_at = NULL, worker_id = NULL WHERE id = %s", [task_id])
    await drain()
    assert counts(db) == (2, 2)
    said = violations(db)
    assert f"I15: step ledger of {task_id} was forgotten without a replay of the completed task" in said
    assert f"I15: children gather of {task_id} was forgotten without a replay of the completed task" in said


async def test_a_dead_letter_that_is_replayed_keeps_its_records(client: Client, db: psycopg.Connection) -> None:
    replayed: list[int] = []

    @task(name="h.failing", durable=True)
    async def failing() -> None:
        await step("ledger", ledger, transactional=True)
        if not replayed:
            raise tasklib.Reject("no")

    task_id = await failing.submit()
    await drain()
    replayed.append(1)
    client.replay_task(task_id)
    await drain()
    assert client.get_task(task_id).state == "completed"
    assert (counts(db), violations(db)) == ((1, 0), [])


async def test_a_flow_of_which_two_tasks_were_cancelled_by_request_and_one_by_its_gate_is_replayed_in_order(
    client: Client, db: psycopg.Connection
) -> None:
    """Seed 51 of the chaos runs: the last one waits again before its gate hears of the replay."""

    @task(name="h.link")
    async def link(before: str = "") -> str:
        return "done"

    run = await chain(link.s("a"), link.s(), link.s()).submit()
    first, second, third = (ids[0] for ids in run.tasks.values())
    client.cancel_task(third)
    client.cancel_task(first)
    Rows(db).fold()
    assert client.get_task(second).state == "cancelled"
    client.replay_flow(run.id)
    await drain()
    assert [client.get_task(each).state for each in (first, second, third)] == ["completed"] * 3
    left = "SELECT count(*) FROM transitions WHERE task = %s AND old_state = 'cancelled' AND new_state = 'pending'"
    assert db.execute(left, [third]).fetchall() == [(2,)]
    end = End(flows=history(db))
    moves = [move._replace(wrote_token=None) for move in recording.transitions(db)]
    log = [{"op": "run", "task": str(each), "token": 1, "at": 0.0} for each in (first, second, third)]
    verdict = Checker(crash_limit=3).check(moves, [], log, end)
    assert verdict.holds, list(lines(verdict))


async def test_the_operator_of_a_chaos_run_replays_no_task_of_a_flow_that_completes_meanwhile(
    config: Config, db: psycopg.Connection, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look and its replay a task may complete; replayed, it would do everything again."""
    rows = Rows(db)
    flow, end = rows.flow(2)
    runs, stopped = (rows.task(flow, name, reports_to=[end]) for name in ("runs", "stopped"))
    rows.hold(runs)
    db.execute("UPDATE tasks SET cancel_requested_at = now()")
    db.execute("UPDATE tasks SET state = 'cancelled', completed_at = now() WHERE id = %s", [stopped])
    operator = Operator(Scene(config.database_url, config.database_url, str(tmp_path), 1, 1.0, 0), "operator")
    operator._cancelled = [runs, stopped]
    replay = operator._client.replay_task

    def completes_first(task_id: UUID) -> None:
        db.execute(
            "UPDATE tasks SET state = 'completed', completed_at = now(), locked_until = NULL WHERE state = 'running'"
        )
        replay(task_id)

    monkeypatch.setattr(operator._client, "replay_task", completes_first)
    with closing(operator._client):
        operator._replay()
    assert [rows.state(each) for each in (runs, stopped)] == ["completed", "pending"]


def test_the_first_run_of_a_backfill_waits_for_runs_that_the_next_slot_cancels(
    config: Config, client: Client, db: psycopg.Connection
) -> None:
    """Plain runs of the schedule report to the first gate of a backfill that goes one by one."""
    client.create_schedule(
        "h.report", Schedule(every=HOUR, overlap="cancel_running"), name="nightly", registered_elsewhere=True
    )
    plain = client.run_schedule("nightly")
    done = client.backfill_schedule("nightly", start=START, end=START + 2 * HOUR)
    assert (done.overlap, len(done.task_ids)) == ("one_by_one", 3)
    db.execute("UPDATE schedules SET next_slot = date_trunc('hour', now())")
    database = Database(config)
    term = database.run(fleet.lead("leader", 60))
    assert term is not None
    [due] = database.run(firing.look(limit=10)).due
    offer = decide(due)
    assert offer is not None
    database.run(firing.fire(term, [offer], [UUID(int=7)]))
    Rows(db).fold()
    assert {client.get_task(id_).state for id_ in (plain, *done.task_ids)} == {"cancelled"}
    assert done.flow is not None
    assert Rows(db).finished(done.flow)
    assert db.execute("SELECT count(*) FROM gates WHERE opened_at IS NULL").fetchall() == [(0,)]
    assert violations(db) == []

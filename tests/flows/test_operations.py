"""What operators do with flows: list, show, cancel, replay, draw; and how long they are kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from typer.testing import CliRunner

import tasklib
from tasklib import Client, Config, Flow, FlowNotFound, chain, group, task
from tasklib.cli.app import app
from tasklib.config import Retention
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.maintenance.gates import sweep_gates
from tasklib.maintenance.retention import delete_expired
from tasklib.store import fleet
from tasklib.tasks import registry
from tasklib.tasks.flow_runs import Submittable
from tasklib.testing import drain_sync

broken = True


@task(name="ops.step")
def step(x: int = 0) -> int:
    return x + 1


@task(name="ops.shaky")
def shaky(x: int = 0) -> int:
    if broken:
        raise tasklib.Reject("broken")
    return x + 10


@task(name="ops.total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@pytest.fixture(autouse=True)
def client(config: Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    tasklib.init(config)
    for function in (step, shaky, total):
        registry.register(function)
    monkeypatch.setattr(f"{__name__}.broken", True)
    with Client(config) as client:
        yield client


def states(db: psycopg.Connection) -> list[str]:
    return [state for (state,) in db.execute("SELECT state FROM tasks ORDER BY id")]


def test_a_flow_is_listed_and_shown_with_its_nodes_and_edges(client: Client) -> None:
    flow: Flow[int] = Flow("import")
    first = flow.add(step.s(1), name="first")
    many = flow.add([step.s(first) for _ in range(3)], name="many")
    flow.add(total.s(many), name="last")
    run = flow.submit_sync()
    chain(step.s(), step.s()).submit_sync()
    assert [(i.name, i.state, i.total, i.completed) for i in client.flows()] == [
        ("chain", "running", 2, 0),
        ("import", "running", 5, 0),
    ]
    drain_sync()
    assert client.flows(unfinished=True) == []
    details = client.get_flow(run.id)
    assert details.info.state == "completed"
    assert [(n.name, n.task, n.count, n.states) for n in details.nodes] == [
        ("first", "ops.step", 1, {"completed": 1}),
        ("many", "ops.step", 3, {"completed": 3}),
        ("last", "ops.total", 1, {"completed": 1}),
    ]
    assert sorted(details.edges) == [("first", "many"), ("many", "last")]
    with pytest.raises(FlowNotFound):
        client.get_flow(uuid4())


def test_cancelling_a_flow_ends_all_that_has_not_ended(client: Client, db: psycopg.Connection) -> None:
    run = group(step.s(n) for n in range(3)).then(total.s()).submit_sync()
    assert client.cancel_flow(run.id).cancelled == 4
    assert states(db) == ["cancelled"] * 4
    assert client.get_flow(run.id).info.state == "cancelled"
    assert client.cancel_flow(run.id).cancelled == 0
    assert ("flow.cancel",) in db.execute("SELECT action FROM audit").fetchall()


def test_a_cancelled_flow_can_be_replayed(client: Client, db: psycopg.Connection) -> None:
    run = group(step.s(n) for n in range(3)).then(total.s()).submit_sync()
    client.cancel_flow(run.id)
    assert client.replay_flow(run.id) == 4
    assert client.get_flow(run.id).info.state == "running"
    drain_sync()
    assert run.result(timeout=1) == 6


def test_replaying_a_flow_goes_on_at_the_failure_and_keeps_what_completed(
    client: Client, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = chain(group(step.s(1), shaky.s(1)), total.s(), step.s()).submit_sync()
    drain_sync()
    assert states(db) == ["completed", "dead_letter", "cancelled", "cancelled"]
    assert client.get_flow(run.id).info.state == "failed"
    tokens = db.execute("SELECT lease_token FROM tasks ORDER BY id").fetchall()
    monkeypatch.setattr(f"{__name__}.broken", False)
    assert client.replay_flow(run.id) == 1
    drain_sync()
    assert run.result(timeout=1) == 2 + 11 + 1
    assert db.execute("SELECT lease_token FROM tasks ORDER BY id").fetchall()[0] == tokens[0], "it did not run again"
    assert client.get_flow(run.id).info.state == "completed"
    assert client.replay_flow(run.id) == 0


def test_explain_names_the_gate_and_how_far_it_is(client: Client) -> None:
    run = group(step.s(n) for n in range(3)).then(total.s()).submit_sync()
    assert run.last is not None
    reason = client.explain_task(run.last).reasons[0]
    assert reason.code == "waits_for_gate"
    assert "of 3 tasks of ops.step, 0 completed" in reason.sentence
    assert str(run.id) in reason.hint


def test_explain_says_what_a_gate_needs(client: Client) -> None:
    def wanted(part: Submittable[Any]) -> str:
        run = client.submit_flow(part)
        return client.explain_task(run.last).reasons[0].sentence

    parts = group(step.s(n) for n in range(4))
    assert "until at least 3 of them have completed: of 4 tasks" in wanted(parts.then(step.s(x=1), at_least=3))
    assert "until at least 0.5 of them have completed" in wanted(parts.then(step.s(x=1), at_least=0.5))
    assert "until all have ended" in wanted(parts.then(step.s(x=1), when="settled"))
    flow: Flow[int] = Flow()
    maybe = flow.add(step.s(1), name="maybe")
    flow.add(step.s(2), optional=[maybe])
    assert "until all have completed, of which maybe may fail" in wanted(flow)


async def test_the_leader_counts_what_a_worker_left_behind(config: Config, db: psycopg.Connection) -> None:
    await chain(step.s(1), step.s()).submit()
    db.execute(
        "WITH ended AS (UPDATE tasks SET state = 'completed', completed_at = now() WHERE waits_for IS NULL "
        "RETURNING reports_to) INSERT INTO arrivals (gate, completed) SELECT unnest(reports_to), 1 FROM ended"
    )
    connection = ReconnectingConnection(config, "test")
    term = await connection.run(fleet.lead("leader", 60))
    assert term is not None
    assert await sweep_gates(connection, config, term) == []
    assert db.execute("SELECT count(*) FROM tasks WHERE waits_for IS NOT NULL").fetchall() == [(0,)]
    assert db.execute("SELECT count(*) FROM arrivals").fetchall() == [(0,)]
    connection.drop()


async def test_retention_takes_a_flow_as_a_whole_and_never_one_that_goes_on(
    config: Config, db: psycopg.Connection
) -> None:
    config = config.with_changes(retention=(Retention("completed", days=1),), dead_letter_days=1)
    await chain(step.s(1), step.s()).submit()
    await chain(step.s(1), step.s()).submit()
    ((old,), (new,)) = db.execute("SELECT id FROM flows ORDER BY id").fetchall()
    db.execute("UPDATE tasks SET state = 'completed', completed_at = now() - interval '9 days' WHERE flow = %s", [old])
    db.execute("UPDATE flows SET finished_at = now() - interval '9 days' WHERE id = %s", [old])
    db.execute(
        "UPDATE tasks SET state = 'dead_letter', completed_at = now() - interval '9 days' "
        "WHERE flow = %s AND waits_for IS NULL",
        [new],
    )
    connection = ReconnectingConnection(config, "test")
    term = await connection.run(fleet.lead("leader", 60))
    assert term is not None
    await delete_expired(connection, config, term)
    assert db.execute("SELECT DISTINCT flow FROM tasks").fetchall() == [(new,)]
    assert db.execute("SELECT id FROM flows").fetchall() == [(new,)]
    assert db.execute("SELECT count(*) FROM gates WHERE flow = %s", [old]).fetchall() == [(0,)]
    assert db.execute("SELECT count(*) FROM tasks").fetchall() == [(2,)]
    connection.drop()


def test_the_command_lists_shows_draws_cancels_and_replays(config: Config, client: Client) -> None:
    run = group(step.s(n) for n in range(3)).then(total.s()).submit_sync()
    database = ["--database-url", config.database_url]

    def said(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["flow", *arguments, *database])
        assert result.exit_code == 0, result.output
        return result.output

    assert str(run.id) in said("list")
    assert json.loads(said("list", "--json"))["total"] == 4
    assert "ops.total" in said("show", str(run.id))
    assert len(json.loads(said("show", str(run.id), "--json"))["nodes"]) == 2
    assert said("graph", str(run.id)).splitlines()[0] == "flowchart LR"
    assert "n0 --> n1" in said("graph", str(run.id))
    assert '"ops.step" -> "ops.total";' in said("graph", str(run.id), "--format", "dot")
    assert said("cancel", str(run.id), "--yes") == "cancelled 4, requested 0 to stop\n"
    assert said("replay", str(run.id), "--yes") == "4 tasks start afresh\n"

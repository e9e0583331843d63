"""Why a task is not running: each reason, its sentence and its hint, and what it says on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from typer.testing import CliRunner

from tasklib import Client, Config, TaskState
from tasklib.cli.app import app
from tasklib.client.explaining import Explanation
from tasklib.errors import InvalidOption, TaskNotFound
from tests.client.conftest import Either

# Times are hours away, so that a slow machine says the same.
RUNNING = {"state": "'running'", "worker_id": "'w'", "started_at": "now() - interval '10 h'"}


@pytest.fixture(autouse=True)
def _no_fleet_left(janitor: psycopg.Connection) -> Iterator[None]:
    yield
    janitor.execute("DELETE FROM workers")
    janitor.execute("DELETE FROM pauses")


def add(db: psycopg.Connection, table: str, **columns: str) -> UUID:
    """Insert a row of SQL expressions; returns its id if it has one."""
    names, values = ", ".join(columns), ", ".join(columns.values())
    row = db.execute(f"INSERT INTO {table} ({names}) VALUES ({values}) RETURNING *".encode()).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def add_task(db: psycopg.Connection, **columns: str) -> UUID:
    return add(db, "tasks", **{"name": "'mail.send'", **columns})


def add_worker(db: psycopg.Connection, id_: str = "w", **columns: str) -> None:
    defaults = {"id": f"'{id_}'", "names": "'{mail.send}'", "capacity": "10", "host": "'box'", "pid": "77"}
    add(db, "workers", **{**defaults, **columns})


def codes(explanation: Explanation) -> list[str]:
    return [reason.code for reason in explanation.reasons]


def only(explanation: Explanation, code: str) -> Any:
    assert codes(explanation) == [code]
    return explanation.reasons[0]


async def test_unknown_task_is_not_found_in_either_colour(either: Either) -> None:
    for call in (either.explain_task, either.queue_position):
        with pytest.raises(TaskNotFound, match="no task has the id"):
            await call(uuid4())
        with pytest.raises(InvalidOption, match="a task id is a UUID"):
            await call("nonsense")


async def test_either_colour_explains_by_id_or_its_text(either: Either, db: psycopg.Connection) -> None:
    task_id = add_task(db)
    assert (await either.explain_task(str(task_id))).task_id == task_id
    assert (await either.queue_position(str(task_id))).number == 1


# ---- not its time, or not allowed ----


def test_delayed_task_says_when_it_is_due(client: Client, db: psycopg.Connection) -> None:
    add_worker(db)
    found = client.explain_task(add_task(db, scheduled_at="now() + interval '5455 s'"))
    reason = only(found, "not_due")
    assert "It is not due before" in reason.sentence
    assert "(in 1 h 30 min)" in reason.sentence
    assert 5000 < reason.details["seconds"] <= 5455
    assert found.position is None


def test_retry_says_when_and_why(client: Client, db: psycopg.Connection) -> None:
    add_worker(db)
    columns = {"state": "'failed'", "retry_count": "1", "error": r"E'Traceback\n  ...\nValueError: boom'"}
    reason = only(
        client.explain_task(add_task(db, next_retry_at="now() + interval '20 s'", **columns)), "retry_scheduled"
    )
    assert "waits for retry 1 of 3 retries" in reason.sentence
    assert reason.sentence.endswith("ValueError: boom")


def test_paused_queue_and_name_are_named_with_their_time_and_the_way_back(
    client: Client, db: psycopg.Connection
) -> None:
    add_worker(db)
    add(db, "pauses", kind="'queue'", value="'default'", paused_at="now() - interval '5 h'")
    add(db, "pauses", kind="'name'", value="'mail.send'")
    found = client.explain_task(add_task(db))
    assert codes(found) == ["queue_paused", "name_paused"]
    assert "paused since" in found.reasons[0].sentence
    assert "(5 h ago)" in found.reasons[0].sentence
    assert [r.hint for r in found.reasons] == [
        "Resume it: tasklib resume --queue default",
        "Resume it: tasklib resume --name mail.send",
    ]


def test_several_blockers_are_all_named_the_most_decisive_first(client: Client, db: psycopg.Connection) -> None:
    add(db, "pauses", kind="'queue'", value="'default'")
    found = client.explain_task(add_task(db, scheduled_at="now() + interval '1 h'"))
    assert codes(found) == ["not_due", "queue_paused", "no_worker"]


# ---- no worker can take it ----


def test_dead_silent_and_draining_workers_are_no_workers(client: Client, db: psycopg.Connection) -> None:
    add_worker(db, "dead", reported_status="'dead'")
    add_worker(db, "silent", last_heartbeat="now() - interval '10 min'")
    add_worker(db, "leaving", reported_status="'draining'")
    add_worker(db, "asked to leave", drain_requested_at="now()")
    reason = only(client.explain_task(add_task(db)), "no_worker")
    assert reason.sentence == "No live worker takes tasks; 2 are draining."
    assert reason.hint == "Start one: tasklib worker MODULE"


def test_queue_without_a_worker_is_named_with_those_that_have_one(client: Client, db: psycopg.Connection) -> None:
    add_worker(db, queues="'{a,b}'")
    reason = only(client.explain_task(add_task(db, queue="'mail'")), "queue_not_served")
    assert "No live worker serves its queue 'mail'" in reason.sentence
    assert "a, b" in reason.sentence
    assert reason.hint.endswith("--queue mail")


def test_name_that_no_worker_knows_comes_with_the_workers_there_are_and_names_like_it(
    client: Client, db: psycopg.Connection
) -> None:
    add_worker(db, "here", names="'{mail.send,other}'")
    add_worker(db, "elsewhere", names="'{mial.send}'", queues="'{x}'")
    reason = only(client.explain_task(add_task(db, name="'mial.send'")), "name_not_known")
    assert "knows the name 'mial.send'. There are here (2 names)." in reason.sentence
    assert "Workers of other queues do: elsewhere." in reason.sentence
    assert "Known names like it: mail.send." in reason.sentence


def test_missing_capabilities_are_those_of_the_nearest_worker(client: Client, db: psycopg.Connection) -> None:
    add_worker(db, "near", capabilities="'{gpu}'")
    add_worker(db, "far")
    add_worker(db, "has all but the name", names="'{other}'", capabilities="'{gpu,big}'")
    reason = only(client.explain_task(add_task(db, required_capabilities="'{gpu,big}'")), "capabilities_missing")
    assert reason.sentence == "No live worker has all it requires (gpu, big). The nearest, near, lacks big."
    assert reason.hint.endswith("--capability gpu --capability big")


# ---- in line ----


def test_task_behind_others_of_full_workers_says_how_many_and_since_when(
    client: Client, db: psycopg.Connection
) -> None:
    add_worker(db, current_load="10")
    for _ in range(3):
        add_task(db, scheduled_at="now() - interval '1 min'")
    found = client.explain_task(add_task(db))
    assert codes(found) == ["workers_full", "in_line"]
    assert "the only fitting worker, w, ran 10 of at most 10 tasks" in found.reasons[0].sentence
    assert found.reasons[1].sentence.startswith("3 tasks of its queue 'default' go before it.")
    assert found.position is not None
    assert found.position.number == 4


def test_task_that_is_next_says_so(client: Client, db: psycopg.Connection) -> None:
    add_worker(db, current_load="3")
    reason = only(client.explain_task(add_task(db)), "next")
    assert "7 slots are free: a worker claims it at its next poll" in reason.sentence


def test_position_is_none_for_what_stands_in_no_line(client: Client, db: psycopg.Connection) -> None:
    add(db, "pauses", kind="'queue'", value="'paused'")
    add(db, "pauses", kind="'name'", value="'paused'")
    for columns in (
        {"queue": "'paused'"},
        {"name": "'paused'"},
        {"scheduled_at": "now() + interval '1 h'"},
        {**RUNNING, "locked_until": "now()"},
        {"state": "'completed'", "completed_at": "now()"},
    ):
        assert client.queue_position(add_task(db, **columns)) is None


# ---- running and finished ----


def test_running_task_says_where_since_when_and_how_far_it_is(client: Client, db: psycopg.Connection) -> None:
    add_worker(db)
    task = add_task(db, **RUNNING, locked_until="now() + interval '5 min'", progress="'{\"done\": 3}'")
    reason = only(client.explain_task(task), "running")
    assert "It is running, attempt 1, since" in reason.sentence
    assert "(10 h ago) on w (box, process 77)" in reason.sentence
    assert 'Progress: {"done": 3}.' in reason.sentence


def test_running_task_in_trouble_says_all_that_is_wrong(client: Client, db: psycopg.Connection) -> None:
    add_worker(db, last_heartbeat="now() - interval '100 s'")
    task = add_task(
        db, **RUNNING, locked_until="now() - interval '1 s'", timeout_seconds="14400", cancel_requested_at="now()"
    )
    found = client.explain_task(task)
    assert codes(found) == ["running", "cancel_requested", "worker_silent", "lease_ended", "past_timeout"]
    assert "6 h past its timeout of 4 h" in found.reasons[-1].sentence


def test_finished_task_says_when_and_with_what(client: Client, db: psycopg.Connection) -> None:
    ended = {"completed_at": "now() - interval '1 h'", "started_at": "now() - interval '3602 s'"}
    completed = add_task(db, state="'completed'", result="'{\"value\": [1, 2]}'", **ended)
    reason = only(client.explain_task(completed), "completed")
    assert "(1 h ago), after 2.0 s. Its result: [1, 2]" in reason.sentence

    given_up = add_task(db, state="'dead_letter'", error=r"E'Traceback\nKeyError: 1'", retry_count="3", **ended)
    reason = only(client.explain_task(given_up), "dead_letter")
    assert reason.sentence.endswith("after 4 attempts: KeyError: 1")
    assert f"tasklib replay {given_up}" in reason.hint

    cancelled = add_task(db, state="'cancelled'", **ended)
    assert only(client.explain_task(cancelled), "cancelled").sentence.startswith("It was cancelled at")


# ---- as data, and on the command line ----


def test_explanation_is_data_for_json(client: Client, db: psycopg.Connection) -> None:
    add_worker(db)
    found = client.explain_task(add_task(db))
    data = json.loads(json.dumps(found.as_dict()))
    assert data["task_id"] == str(found.task_id)
    assert data["state"] == TaskState.PENDING
    assert data["reasons"][0].keys() == {"code", "sentence", "hint", "details"}
    assert data["position"]["number"] == 1
    assert data["position"]["eta_seconds"] is None


def test_command_line_explains_in_sentences_and_as_json(config: Config, db: psycopg.Connection) -> None:
    add_worker(db, current_load="10")
    add_task(db, state="'completed'", started_at="now() - interval '4 s'", completed_at="now()")
    add_task(db, scheduled_at="now() - interval '1 min'")
    task = str(add_task(db))
    environment = {"TASKLIB_DATABASE_URL": config.database_url, "COLUMNS": "200"}

    said = CliRunner().invoke(app, ["explain", task[-8:]], env=environment).output
    assert said.startswith(f"mail.send  {task}  pending")
    assert "1 task of its queue 'default' goes before it." in said
    assert "  → Wait, add workers" in said
    assert "Number 2 in line; about 800 ms until it begins" in said

    as_json = CliRunner().invoke(app, ["explain", task, "--json"], env=environment).output
    assert [r["code"] for r in json.loads(as_json)["reasons"]] == ["workers_full", "in_line"]

    missing = CliRunner().invoke(app, ["explain", str(uuid4())], env=environment)
    assert missing.exit_code == 1

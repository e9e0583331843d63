"""Change a task while it waits: its arguments and options, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tasklib import Client, Config, Flow, task
from tasklib.errors import InvalidOption, QueueFull, TaskExecutionError, TaskNotEditable, TaskNotFound
from tasklib.store import control
from tests.client.conftest import Either

LATER = "now() + interval '1 h'"


def insert(db: psycopg.Connection, **columns: str) -> str:
    columns = {"name": "'work'", "kwargs": """'{"to": "a", "n": 1}'""", **columns}
    names, values = ", ".join(columns), ", ".join(columns.values())
    row = db.execute(f"INSERT INTO tasks ({names}) VALUES ({values}) RETURNING id".encode()).fetchone()
    assert row is not None
    return str(row[0])


def stored(db: psycopg.Connection, task_id: str | UUID) -> Any:
    return db.execute("SELECT t::text FROM tasks AS t WHERE id = %s", [str(task_id)]).fetchone()


async def test_arguments_and_options_of_a_waiting_task_change(
    either: Either, client: Client, db: psycopg.Connection
) -> None:
    task_id = insert(db)
    state = await either.edit_task(
        task_id,
        kwargs={"to": "b"},
        queue="slow",
        priority="high",
        max_retries=9,
        timeout_seconds=5,
        tags={"batch": "x"},
        required_capabilities=["gpu"],
    )
    found = client.get_task(task_id)
    assert state == "pending"
    assert (found.kwargs, found.queue, found.priority) == ({"to": "b"}, "slow", client.config.levels["high"].priority)
    assert (found.max_retries, found.timeout_seconds, found.tags) == (9, 5, {"batch": "x"})
    assert (found.required_capabilities, found.state) == (["gpu"], "pending")


async def test_what_is_not_given_stays(either: Either, db: psycopg.Connection) -> None:
    task_id = insert(db, queue="'slow'", priority="3", tags="""'{"a": 1}'""")
    before = stored(db, task_id)
    assert await either.edit_task(task_id) == "pending"
    assert await either.edit_task(task_id, queue="slow", priority=3, tags={"a": 1}, kwargs={"n": 1, "to": "a"})
    assert stored(db, task_id) == before


@pytest.mark.parametrize("how", [{"delay_seconds": 7200.0}, {"scheduled_at": datetime.now(UTC) + timedelta(hours=2)}])
async def test_a_task_is_put_off_and_a_failed_one_is_retried_later(
    either: Either, client: Client, db: psycopg.Connection, how: dict[str, Any]
) -> None:
    waits = insert(db)
    failed = insert(db, state="'failed'", next_retry_at=LATER, scheduled_at="now() - interval '1 h'")
    began = client.get_task(failed).scheduled_at
    for task_id in (waits, failed):
        await either.edit_task(task_id, **how)
    soon = datetime.now(UTC) + timedelta(minutes=90)
    found = client.get_task(failed)
    assert client.get_task(waits).scheduled_at > soon
    assert (found.next_retry_at > soon, found.scheduled_at, found.state) == (True, began, "failed")


@pytest.mark.parametrize(
    "columns",
    [
        {"state": "'running'", "worker_id": "'w'", "locked_until": LATER},
        {"state": "'completed'", "completed_at": "now()"},
        {"state": "'cancelled'", "completed_at": "now()"},
        {"state": "'dead_letter'", "completed_at": "now()"},
    ],
    ids=["running", "completed", "cancelled", "dead letter"],
)
async def test_a_task_that_does_not_wait_stays_as_it_is(
    either: Either, db: psycopg.Connection, columns: dict[str, str]
) -> None:
    task_id = insert(db, **columns)
    before = stored(db, task_id)
    with pytest.raises(TaskNotEditable, match="only a task that waits can be edited"):
        await either.edit_task(task_id, queue="slow")
    assert stored(db, task_id) == before


def until_it_writes(client: Client, call: Any) -> Any:
    """The statement that an edit is about to run."""
    query = next(call)
    while query.name != "edit":
        query = call.send(client.database.run(query))
    return query


def test_a_task_that_begins_between_look_and_edit_stays_as_it_is(client: Client, db: psycopg.Connection) -> None:
    task_id = insert(db)
    call = client.calls.edit_task(task_id, queue="slow")
    query = until_it_writes(client, call)
    db.execute(
        "UPDATE tasks SET state = 'running', worker_id = 'w', locked_until = now(), lease_token = 1 WHERE id = %s",
        [task_id],
    )
    before = stored(db, task_id)
    with pytest.raises(TaskNotEditable, match="is running by now; the edit changed nothing"):
        call.send(client.database.run(call.send(client.database.run(query))))
    assert stored(db, task_id) == before


def test_of_two_edits_at_a_time_the_second_is_refused(client: Client, db: psycopg.Connection) -> None:
    task_id = insert(db)
    call = client.calls.edit_task(task_id, kwargs={"to": "c"})
    query = until_it_writes(client, call)
    client.edit_task(task_id, kwargs={"to": "b"})
    with pytest.raises(TaskNotEditable, match="was changed in the meantime"):
        call.send(client.database.run(call.send(client.database.run(query))))
    assert client.get_task(task_id).kwargs == {"to": "b"}


async def test_arguments_are_checked_against_the_function(
    either: Either, client: Client, db: psycopg.Connection
) -> None:
    @task(name="edit_checked")
    def checked(number: int, at: datetime) -> None: ...

    when = datetime(2026, 1, 2, tzinfo=UTC)
    task_id = client.submit_task(checked, number=1, at=when)
    with pytest.raises(TaskExecutionError, match="number"):
        await either.edit_task(task_id, kwargs={"number": "many", "at": when})
    await either.edit_task(task_id, kwargs={"number": 2, "at": when})
    assert checked.arguments.from_json('{"number": 2, "at": "2026-01-02T00:00:00Z"}') == {"number": 2, "at": when}
    assert client.get_task(task_id).kwargs == {"number": 2, "at": "2026-01-02T00:00:00Z"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 101}, "priority"),
        ({"max_retries": -1}, "max_retries"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"queue": ""}, "queue"),
        ({"scheduled_at": datetime(2026, 1, 1)}, "naive"),
        ({"scheduled_at": datetime(2026, 1, 1, tzinfo=UTC), "delay_seconds": 1}, "not both"),
        ({"tags": ["a"]}, "tags"),
    ],
)
async def test_options_are_checked_like_those_of_a_submission(
    either: Either, db: psycopg.Connection, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        await either.edit_task(insert(db), **options)


async def test_retries_of_a_function_that_runs_at_most_once_are_refused(either: Either, client: Client) -> None:
    @task(name="edit_once", at_most_once=True)
    def once() -> None: ...

    with pytest.raises(InvalidOption, match="at most once"):
        await either.edit_task(client.submit_task(once), max_retries=2)


async def test_an_unknown_task_is_not_found(either: Either) -> None:
    with pytest.raises(TaskNotFound):
        await either.edit_task(uuid4(), queue="slow")


# ---- arguments that others rely on ----


async def test_an_idempotency_key_stays_with_the_edited_task(either: Either, client: Client) -> None:
    first = client.submit_task("work", kwargs={"to": "a"}, idempotency_key="k", registered_elsewhere=True)
    await either.edit_task(first, kwargs={"to": "b"})
    again = client.submit_task("work", kwargs={"to": "a"}, idempotency_key="k", registered_elsewhere=True)
    assert again == first
    assert client.get_task(first).kwargs == {"to": "b"}


@pytest.mark.parametrize("how", [{"unique": "pending"}, {"debounce": 60.0}, {"throttle": 60.0}], ids=str)
async def test_arguments_by_which_submissions_meet_are_refused(
    either: Either, client: Client, db: psycopg.Connection, how: dict[str, Any]
) -> None:
    task_id = client.submit_task("work", kwargs={"to": "a"}, registered_elsewhere=True, **how)
    before = stored(db, task_id)
    with pytest.raises(TaskNotEditable, match="other submissions are"):
        await either.edit_task(task_id, kwargs={"to": "b"})
    assert stored(db, task_id) == before
    assert await either.edit_task(task_id, priority=5) == "pending"


async def test_arguments_that_are_results_of_a_flow_are_refused(either: Either, client: Client) -> None:
    @task(name="edit_first")
    def first() -> int:
        return 1

    @task(name="edit_second")
    def second(n: int, to: str) -> None: ...

    flow = Flow("edited")
    flow.add(second.s(n=flow.add(first.s()), to="a"))
    handle = client.submit_flow(flow)
    [waits] = [t for t in client.list_tasks() if t.name == "edit_second"]
    with pytest.raises(TaskNotEditable, match="n will be results of other tasks"):
        await either.edit_task(waits.id, kwargs={"to": "b"})
    with pytest.raises(TaskNotEditable, match="waits for other tasks of its flow"):
        await either.edit_task(waits.id, delay_seconds=5)
    assert await either.edit_task(waits.id, queue="slow") == "pending"
    assert client.get_task(waits.id).waits_for is not None
    assert handle.id == waits.flow


async def test_arguments_of_a_durable_function_that_began_are_refused(
    either: Either, client: Client, db: psycopg.Connection
) -> None:
    task_id = insert(db, awaited_signals="'{}'", scheduled_at=LATER)
    db.execute(
        "INSERT INTO steps (task, kind, name, result, token) VALUES (%s, 'step', 'a', '{\"value\": 1}', 1)", [task_id]
    )
    with pytest.raises(TaskNotEditable, match="steps on record"):
        await either.edit_task(task_id, kwargs={"to": "b"})
    with pytest.raises(TaskNotEditable, match="sleeps, or waits for a signal"):
        await either.edit_task(task_id, delay_seconds=5)
    assert await either.edit_task(task_id, priority=4) == "pending"


async def test_arguments_of_another_version_are_refused_and_the_version_is_still_required(
    either: Either, client: Client, db: psycopg.Connection
) -> None:
    @task(name="edit_versioned", version=2)
    def versioned(to: str) -> None: ...

    old = insert(db, name="'edit_versioned'", payload_version="1", required_capabilities="'{edit_versioned@1}'")
    with pytest.raises(TaskNotEditable, match="of version 1, and this program checks those of version 2"):
        await either.edit_task(old, kwargs={"to": "b"})
    new = client.submit_task(versioned, to="a")
    await either.edit_task(new, kwargs={"to": "b"}, required_capabilities=["gpu"])
    found = client.get_task(new)
    assert (found.kwargs, found.required_capabilities) == ({"to": "b"}, ["edit_versioned@2", "gpu"])


async def test_sealed_arguments_are_refused_and_their_key_is_still_required(
    either: Either, client: Client, db: psycopg.Connection
) -> None:
    columns = {"kwargs": """'{"$sealed": "AQ=="}'""", "key_id": "'k1'", "required_capabilities": "'{key:k1}'"}
    task_id = insert(db, **columns)
    with pytest.raises(TaskNotEditable, match="they are sealed"):
        await either.edit_task(task_id, kwargs={"to": "b"})
    await either.edit_task(task_id, required_capabilities=["gpu"], queue="slow")
    found = client.get_task(task_id)
    assert (found.required_capabilities, found.queue) == (["gpu", "key:k1"], "slow")
    with pytest.raises(TaskNotEditable, match="belong to the task that they were sealed for"):
        await either.edit_task(insert(db), kwargs={"$sealed": "AQ=="})


# ---- limits ----


async def test_a_task_with_other_arguments_is_behind_other_limits(
    either: Either, client: Client, db: psycopg.Connection
) -> None:
    db.execute("""INSERT INTO limited_names (name, uses) VALUES ('edit_limited', '[{"serial": "account"}]')""")
    task_id = client.submit_task("edit_limited", kwargs={"account": "7"}, share="ann", registered_elsewhere=True)
    lane = "SELECT tasklib_lane(name, lane, kwargs) FROM tasks WHERE id = %s"
    db.execute("UPDATE tasks SET lane = tasklib_lane(name, lane, kwargs)")
    assert db.execute(lane, [str(task_id)]).fetchone() == ("\x01k7\x01sann",)
    await either.edit_task(task_id, kwargs={"account": "8"})
    assert db.execute(lane, [str(task_id)]).fetchone() == ("\x01k8\x01sann",)
    db.execute("DELETE FROM limited_names")


@pytest.mark.parametrize(("given", "afterwards"), [("ann", "bob"), ("refund:ann", "refund:ann")])
async def test_a_serial_key_of_the_submission_stays_unless_it_is_that_of_the_argument(
    either: Either, client: Client, db: psycopg.Connection, given: str, afterwards: str
) -> None:
    db.execute("""INSERT INTO limited_names (name, uses) VALUES ('edit_serial', '[{"serial": "account"}]')""")
    task_id = client.submit_task("edit_serial", kwargs={"account": "ann"}, serial_key=given, registered_elsewhere=True)
    await either.edit_task(task_id, kwargs={"account": "bob"})
    lane = "SELECT tasklib_lane(name, lane, kwargs) FROM tasks WHERE id = %s"
    assert db.execute(lane, [str(task_id)]).fetchone() == (f"\x01k{afterwards}",)
    db.execute("DELETE FROM limited_names")


async def test_a_failed_task_that_holds_a_serial_line_keeps_what_it_is_held_by(
    either: Either, db: psycopg.Connection
) -> None:
    task_id = insert(db, state="'failed'", next_retry_at=LATER, queue="'ledger'")
    db.execute(
        "INSERT INTO places (task, limit_name, key, token, held) VALUES (%s, 'queue:ledger', '', 1, true)", [task_id]
    )
    for changes in ({"queue": "other"}, {"kwargs": {"to": "b"}}):
        with pytest.raises(TaskNotEditable, match="holds its place in a serial line"):
            await either.edit_task(task_id, **changes)
    assert await either.edit_task(task_id, max_retries=9) == "failed"
    db.execute("DELETE FROM places")


def test_a_task_is_not_moved_into_a_full_queue(config: Config, db: psycopg.Connection) -> None:
    task_id = insert(db)
    insert(db, queue="'full'", scheduled_at="now() - interval '100 s'")
    with Client(config.with_changes(backpressure=True)) as client:
        client.bound_queue("full", max_wait=60)
        with pytest.raises(QueueFull):
            client.edit_task(task_id, queue="full")
        assert client.get_task(task_id).queue == "default"
        client.bound_queue("full")


def test_what_can_be_edited_is_what_the_statement_gets() -> None:
    given = control.TaskEdit("{}", "q", 1, 1, 1, "{}", [], 1.0, datetime.now(UTC)).given()
    statement = control.edit(uuid4(), control.TaskEdit(), "", {}, by="me")
    assert given.keys() <= statement.parameters.keys()

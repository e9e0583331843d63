"""Looking tasks up and waiting for them; clients as context managers, over several loops, and across a fork."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.orm import registry
from sqlmodel import Field, Session, SQLModel, col, select

import tasklib
from tasklib import AsyncClient, Client, Config, Task, TaskState, task
from tasklib.errors import InvalidOption, NotInitialized, TaskCancelled, TaskFailed, TaskNotFound, WaitTimeout
from tasklib.migrations import migrate
from tests.client.conftest import Either

SET_TO = {
    "pending": "state = 'pending'",
    "running": "state = 'running', worker_id = 'w', locked_until = now() + interval '1 minute', started_at = now()",
    "completed": "state = 'completed', completed_at = now(), result = '{\"value\": 42}'",
    "failed": "state = 'failed', next_retry_at = now() + interval '1 hour', error = 'once'",
    "cancelled": "state = 'cancelled', completed_at = now()",
    "dead_letter": "state = 'dead_letter', completed_at = now(), error = 'Traceback: boom at line 1'",
}


@pytest.fixture
def greet() -> Any:
    @task
    def greet(name: str) -> None: ...

    return greet


def put(db: psycopg.Connection, task_id: UUID, state: str) -> None:
    db.execute(f"UPDATE tasks SET {SET_TO[state]} WHERE id = %s", [task_id])


# ---- get_task ----


async def test_get_task_reads_every_column_with_its_type(either: Either, greet: Any, db: Any) -> None:
    task_id = await either.submit_task(
        greet, name="a", tags={"t": [1]}, required_capabilities=["gpu"], idempotency_key="k", timeout_seconds=5
    )
    found = await either.get_task(task_id)
    assert isinstance(found, Task)
    assert found.model_dump().keys() == {d.name for d in db.execute("SELECT * FROM tasks").description}
    assert (found.id, found.name, found.state, found.kwargs) == (task_id, "greet", "pending", {"name": "a"})
    assert (found.tags, found.required_capabilities, found.timeout_seconds) == ({"t": [1]}, ["gpu"], 5)
    assert found.created_at.utcoffset() is not None
    assert found.idempotency_expires_at is not None
    assert found.idempotency_expires_at - found.created_at == timedelta(hours=24)
    assert (found.result, found.error, found.worker_id, found.completed_at) == (None, None, None, None)


async def test_get_task_takes_the_text_of_an_id(either: Either, greet: Any) -> None:
    task_id = await either.submit_task(greet, name="a")
    for text in (str(task_id), task_id.hex, f"{{{task_id}}}", str(task_id).upper()):
        assert (await either.get_task(text)).id == task_id


async def test_get_task_of_an_unknown_id_is_none(either: Either) -> None:
    assert await either.get_task(uuid4()) is None


@pytest.mark.parametrize("wrong", ["", "nonsense", 5, None, b"x", "0" * 33])
async def test_what_is_no_id_is_refused(wrong: Any, either: Either) -> None:
    with pytest.raises(InvalidOption, match="a task id is a UUID, not "):
        await either.get_task(wrong)
    with pytest.raises(InvalidOption, match="a task id is a UUID, not "):
        await either.wait_for(wrong)


# ---- list_tasks ----


@pytest.fixture
def listed(client: Client, db: Any) -> dict[str, UUID]:
    """Tasks that differ in one thing each."""
    submit = client.submit_task
    ids = {
        "plain": submit("a", registered_elsewhere=True),
        "other name": submit("b", registered_elsewhere=True),
        "other queue": submit("a", queue="slow", registered_elsewhere=True),
        "tagged": submit("a", tags={"team": "x", "n": 1, "deep": {"er": [1, 2]}}, registered_elsewhere=True),
        "tagged else": submit("a", tags={"team": "y"}, registered_elsewhere=True),
        "old": submit("a", registered_elsewhere=True),
    }
    ids |= {state: submit("a", registered_elsewhere=True) for state in SET_TO if state != "pending"}
    for state in SET_TO.keys() - {"pending"}:
        put(db, ids[state], state)
    db.execute("UPDATE tasks SET created_at = '2020-01-01 00:00+00' WHERE id = %s", [ids["old"]])
    return ids


PENDING = {"plain", "other name", "other queue", "tagged", "tagged else", "old"}
ALL = PENDING | (SET_TO.keys() - {"pending"})


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ALL),
        ({"state": "pending"}, PENDING),
        ({"state": "running"}, {"running"}),
        ({"state": TaskState.COMPLETED}, {"completed"}),
        ({"state": "failed"}, {"failed"}),
        ({"state": "cancelled"}, {"cancelled"}),
        ({"state": "dead_letter"}, {"dead_letter"}),
        ({"state": ["failed", TaskState.DEAD_LETTER]}, {"failed", "dead_letter"}),
        ({"state": {"completed"}}, {"completed"}),
        ({"state": []}, set()),
        ({"name": "b"}, {"other name"}),
        ({"name": "nobody"}, set()),
        ({"queue": "slow"}, {"other queue"}),
        ({"tags": {"team": "x"}}, {"tagged"}),
        ({"tags": {"deep": {"er": [2]}}}, {"tagged"}),
        ({"tags": {"team": "x", "n": 2}}, set()),
        ({"tags": {}}, ALL),
        ({"created_before": datetime(2021, 1, 1, tzinfo=UTC)}, {"old"}),
        ({"created_before": datetime(2020, 1, 1, tzinfo=UTC)}, set()),
        ({"created_after": datetime(2020, 1, 1, tzinfo=UTC)}, ALL),
        ({"created_after": datetime(2021, 1, 1, tzinfo=UTC)}, ALL - {"old"}),
        ({"state": "pending", "name": "a", "queue": "default", "tags": {"team": "y"}}, {"tagged else"}),
    ],
    ids=lambda value: str(sorted(value)) if isinstance(value, set) else str(value),
)
async def test_each_filter_finds_what_it_names(
    filters: dict[str, Any], expected: set[str], either: Either, listed: dict[str, UUID]
) -> None:
    found = await either.list_tasks(**filters)
    assert {t.id for t in found} == {listed[name] for name in expected}
    assert [t.id for t in found] == sorted((t.id for t in found), reverse=True), "newest first"


@pytest.mark.parametrize("size", [1, 7, 10, 25, 100])
async def test_pages_have_neither_gaps_nor_repeats_while_tasks_come_in(
    size: int, either: Either, client: Client, greet: Any
) -> None:
    before = client.submit_many(greet, [{"name": "a"}] * 25)
    seen: list[UUID] = []
    after = None
    while page := await either.list_tasks(limit=size, after=after, name="greet"):
        assert len(page) <= size
        seen += [t.id for t in page]
        assert len(seen) <= len(before), "pages repeat themselves"
        after = page[-1]
        client.submit_task(greet, name="newer than every page")
    assert seen == sorted(before, reverse=True)


async def test_a_page_starts_after_a_task_an_id_or_its_text(either: Either, client: Client, greet: Any) -> None:
    ids = client.submit_many(greet, [{"name": "a"}] * 4)
    middle = await either.get_task(ids[2])
    for after in (middle, ids[2], str(ids[2])):
        assert [t.id for t in await either.list_tasks(after=after)] == [ids[1], ids[0]]


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"state": "done"}, "'done' is not a valid TaskState: a state is one of pending, running, completed, failed"),
        ({"state": ["pending", "dead"]}, "'dead' is not a valid TaskState"),
        ({"limit": 0}, "limit must be from 1 to 10000, not 0"),
        ({"limit": 10_001}, "limit must be from 1 to 10000, not 10001"),
        ({"limit": True}, "limit must be from 1 to 10000, not True"),
        ({"limit": 1.5}, "limit must be from 1 to 10000, not 1.5"),
        ({"created_after": datetime(2026, 1, 1)}, r"created_after is a naive datetime \(2026-01-01T00:00:00\)"),
        ({"created_before": datetime(2026, 1, 1)}, "created_before is a naive datetime"),
        ({"created_before": "today"}, "created_before must be a datetime, not 'today'"),
        ({"after": "nonsense"}, "a task id is a UUID, not 'nonsense'"),
        ({"tags": {"a": float("nan")}}, r"tags\.a is nan, which JSON doesn't have"),
        ({"tags": ["a"]}, r"tags must be a mapping such as \{'batch': 'daily'\}, not \['a'\]"),
        ({"name": "a\x00"}, r"name must be a string of 1 to 500 bytes, not 'a\\x00'"),
        ({"queue": 5}, "queue must be a string of 1 to 500 bytes, not 5"),
    ],
    ids=str,
)
async def test_a_filter_that_makes_no_sense_is_explained(filters: dict[str, Any], message: str, either: Either) -> None:
    with pytest.raises(InvalidOption, match=message):
        await either.list_tasks(**filters)


# ---- wait_for ----


@pytest.mark.parametrize("value", [42, None, "text", [1, {"a": None}], {"value": 1}, 1.5, False])
async def test_wait_for_returns_the_result(value: Any, either: Either, greet: Any, db: Any) -> None:
    task_id = await either.submit_task(greet, name="a")
    db.execute(
        "UPDATE tasks SET state = 'completed', completed_at = now(), result = %s::jsonb", [json.dumps({"value": value})]
    )
    assert await either.wait_for(task_id) == value
    assert await either.wait_for(str(task_id), timeout=0) == value


async def test_wait_for_a_dead_letter_raises_with_the_traceback_of_the_worker(
    either: Either, greet: Any, db: Any
) -> None:
    task_id = await either.submit_task(greet, name="a")
    put(db, task_id, "dead_letter")
    expected = rf"^task greet \({task_id}\) failed for good\.\n\nOn the worker:\nTraceback: boom at line 1$"
    with pytest.raises(TaskFailed, match=expected) as caught:
        await either.wait_for(task_id)
    assert caught.value.remote_traceback == "Traceback: boom at line 1"
    assert (caught.value.task_id, caught.value.name) == (task_id, "greet")


async def test_wait_for_a_cancelled_task_raises(either: Either, greet: Any, db: Any) -> None:
    task_id = await either.submit_task(greet, name="a")
    put(db, task_id, "cancelled")
    with pytest.raises(TaskCancelled, match=rf"task greet \({task_id}\) was cancelled") as caught:
        await either.wait_for(task_id)
    assert (caught.value.task_id, caught.value.name) == (task_id, "greet")


@pytest.mark.parametrize("state", ["pending", "running", "failed"])
async def test_wait_for_gives_up_in_time_and_leaves_the_task_alone(
    state: str, either: Either, greet: Any, db: Any
) -> None:
    task_id = await either.submit_task(greet, name="a")
    put(db, task_id, state)
    before = db.execute("SELECT tasks::text FROM tasks").fetchone()
    started = time.monotonic()
    with pytest.raises(WaitTimeout, match=rf"{task_id} is still {state} after 0\.05 s; it goes on") as caught:
        await either.wait_for(task_id, timeout=0.05)
    assert 0.05 <= time.monotonic() - started < 20
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.task_id, caught.value.state) == (task_id, state)
    assert db.execute("SELECT tasks::text FROM tasks").fetchone() == before


async def test_wait_for_without_patience_looks_once(either: Either, greet: Any) -> None:
    task_id = await either.submit_task(greet, name="a")
    with pytest.raises(WaitTimeout, match="still pending after 0 s"):
        await either.wait_for(task_id, timeout=0)


async def test_wait_for_an_id_that_no_task_has(either: Either) -> None:
    task_id = uuid4()
    with pytest.raises(TaskNotFound, match=f"no task has the id {task_id}; it may have been deleted") as caught:
        await either.wait_for(task_id, timeout=5)
    assert caught.value.task_id == task_id


@pytest.mark.parametrize("wrong", [-1, float("nan"), "soon", True])
async def test_a_timeout_that_makes_no_sense_is_explained(wrong: Any, either: Either) -> None:
    with pytest.raises(InvalidOption, match=f"timeout must be 0 seconds or more, not {wrong!r}"):
        await either.wait_for(uuid4(), timeout=wrong)


class Watched(Client):
    """A client that says when it has looked at a task that was not done yet."""

    looked = threading.Event()

    def _do(self, effect: Any) -> Any:
        answer = super()._do(effect)
        if getattr(answer, "state", None) == "running":
            self.looked.set()
        return answer


def test_wait_for_sees_a_task_that_ends_while_it_waits(config: Config, greet: Any, db: Any) -> None:
    with Watched(config) as client:
        client.looked.clear()
        task_id = client.submit_task(greet, name="a")
        put(db, task_id, "running")
        results: list[Any] = []
        waiting = threading.Thread(target=lambda: results.append(client.wait_for(task_id, timeout=30)))
        waiting.start()
        assert client.looked.wait(20)
        db.execute(
            "UPDATE tasks SET state = 'completed', result = '{\"value\": 7}', completed_at = now(), "
            "worker_id = NULL, locked_until = NULL"
        )
        waiting.join(20)
    assert results == [7]


async def test_a_cancelled_wait_stops_at_once(async_client: AsyncClient, greet: Any) -> None:
    task_id = await async_client.submit_task(greet, name="a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await async_client.wait_for(task_id)
    assert (await async_client.get_task(task_id)) is not None, "the client still works"


# ---- the model ----


SIBLINGS: dict[str, Callable[[Task], bool]] = {
    "pending": tasklib.is_pending,
    "running": tasklib.is_running,
    "completed": tasklib.is_completed,
    "failed": tasklib.is_failed,
    "cancelled": tasklib.is_cancelled,
    "dead_letter": tasklib.is_dead_letter,
}


@pytest.mark.parametrize("state", SIBLINGS)
def test_exactly_one_sibling_is_true_of_a_task(state: str, client: Client, greet: Any, db: Any) -> None:
    task_id = client.submit_task(greet, name="a")
    put(db, task_id, state)
    found = client.get_task(task_id)
    assert found is not None
    assert {name for name, holds in SIBLINGS.items() if holds(found)} == {state}
    assert tasklib.is_terminal(found) is (state in ("completed", "cancelled", "dead_letter"))


@pytest.fixture
def session(database_url: str) -> Iterator[Session]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database_url), poolclass=NullPool)
    with Session(engine) as session:
        yield session


def test_the_model_works_in_select(session: Session, client: Client, greet: Any, db: Any) -> None:
    ids = client.submit_many(greet, [{"name": n} for n in "abc"], tags={"team": "x"}, required_capabilities=["gpu"])
    put(db, ids[1], "completed")
    waiting = session.exec(select(Task).where(Task.state == "pending").order_by(col(Task.id))).all()
    assert [t.id for t in waiting] == [ids[0], ids[2]]
    assert [(t.kwargs, t.tags, t.required_capabilities) for t in waiting] == [
        ({"name": "a"}, {"team": "x"}, ["gpu"]),
        ({"name": "c"}, {"team": "x"}, ["gpu"]),
    ]
    done = session.exec(select(Task.id, Task.result).where(Task.state == TaskState.COMPLETED)).one()
    assert tuple(done) == (ids[1], {"value": 42})
    assert waiting[0].model_dump() == client.get_task(ids[0]).model_dump()  # type: ignore[union-attr]


def test_the_model_reads_another_schema_by_translation(database_url: str, session: Session) -> None:
    there = Config(database_url, schema="jobs")
    migrate(there)
    with Client(there) as client:
        task_id = client.submit_task("a", registered_elsewhere=True)
    session.connection(execution_options={"schema_translate_map": {None: "jobs"}})
    assert [t.id for t in session.exec(select(Task)).all()] == [task_id]


def test_the_model_stays_out_of_the_programs_own_tables() -> None:
    assert "tasks" not in SQLModel.metadata.tables

    class Base(SQLModel, registry=registry()):
        pass

    class Task(Base, table=True):
        __tablename__ = "tasks"
        id: int = Field(primary_key=True)

    assert Task.metadata.tables["tasks"].columns.keys() == ["id"]
    assert len(tasklib.Task.metadata.tables["tasks"].columns) > 20


# ---- context managers ----


def sessions(db: psycopg.Connection) -> set[int]:
    """The server's processes that serve our clients."""
    found = db.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tasklib client'"
    )
    return {row[0] for row in found}


def until(condition: Callable[[], bool]) -> None:
    # The server notices a closed socket when it gets to it.
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
def test_leaving_a_client_closes_its_connections(config: Config, greet: Any, db: Any) -> None:
    with Client(config) as client:
        client.submit_task(greet, name="a")
        assert len(sessions(db)) == 1
    until(lambda: not sessions(db))


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
async def test_leaving_an_async_client_closes_its_connections(config: Config, greet: Any, db: Any) -> None:
    async with AsyncClient(config) as client:
        await client.submit_task(greet, name="a")
        assert len(sessions(db)) == 1
    until(lambda: not sessions(db))


def test_clients_take_a_url_a_config_or_the_environment(
    database_url: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKLIB_DATABASE_URL", database_url)
    monkeypatch.setenv("TASKLIB_MAX_RETRIES", "9")
    for kind in (Client, AsyncClient):
        assert kind(database_url).config.max_retries == 9
        assert kind().config.database_url == config.database_url
        assert kind(config).config is config


# ---- the module-level functions ----


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
def test_the_module_level_functions_work_on_one_event_loop_after_another(
    database_url: str, greet: Any, db: Any
) -> None:
    tasklib.init(database_url)

    async def use() -> Task | None:
        task_id = await tasklib.submit_task(greet, name="a")
        assert [t.id for t in await tasklib.list_tasks(limit=1)] == [task_id]
        put(db, task_id, "completed")
        assert await tasklib.wait_for(task_id) == 42
        return await tasklib.get_task(task_id)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        first, second = asyncio.run(use()), asyncio.run(use())
        gc.collect()
    assert [str(w.message) for w in warned if "psycopg" in str(w.message)] == []
    assert first is not None
    assert second is not None
    assert first.id != second.id
    until(lambda: not sessions(db))  # neither loop's: nobody had to close them


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
def test_the_connections_of_a_loop_that_ended_are_closed_when_the_next_one_begins(
    database_url: str, greet: Any, db: Any
) -> None:
    tasklib.init(database_url)
    ended, going = asyncio.new_event_loop(), asyncio.new_event_loop()  # both stay referenced: nothing is collected
    ended.run_until_complete(_submit(greet))
    first = sessions(db)
    ended.close()
    going.run_until_complete(_submit(greet))
    until(lambda: len(sessions(db)) == 1 and sessions(db) != first)
    tasklib.close()
    going.close()


def test_the_synchronous_module_level_functions_work_beside_them(database_url: str, greet: Any, db: Any) -> None:
    tasklib.init(database_url)
    task_id = tasklib.submit_task_sync(greet, name="a")
    put(db, task_id, "completed")
    assert tasklib.wait_for_sync(task_id) == 42
    assert [t.id for t in tasklib.list_tasks_sync()] == [task_id]
    assert tasklib.get_task_sync(task_id).id == task_id  # type: ignore[union-attr]


async def test_loops_in_several_threads_each_have_connections_of_their_own(
    database_url: str, greet: Any, db: Any
) -> None:
    tasklib.init(database_url)

    def elsewhere() -> UUID:
        return asyncio.run(_submit(greet))

    ids = {await asyncio.to_thread(elsewhere), await tasklib.submit_task(greet, name="a")}
    assert {row[0] for row in db.execute("SELECT id FROM tasks")} == ids


async def _submit(function: Any) -> UUID:
    return await tasklib.submit_task(function, name="a")


@pytest.mark.direct(reason="it compares addresses, and the pooler's is another")
def test_init_reads_the_environment_when_nothing_is_given(
    database_url: str, greet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKLIB_DATABASE_URL", database_url)
    assert tasklib.submit_task_sync(greet, name="a"), "even without init()"
    assert tasklib.init().database_url == database_url


def test_a_second_init_replaces_the_first(database_url: str, greet: Any, db: Any) -> None:
    tasklib.init("postgresql://nobody@127.0.0.1:1/nowhere")
    tasklib.init(database_url)
    assert tasklib.submit_task_sync(greet, name="a") == db.execute("SELECT id FROM tasks").fetchone()[0]


def test_close_forgets_the_configuration(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)
    tasklib.init(database_url)
    tasklib.close()
    with pytest.raises(NotInitialized):
        tasklib.list_tasks_sync()


# ---- forks ----


def in_a_child(work: Callable[[], object]) -> str:
    """Run something in a forked child; what it raised, or an empty string."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads forks is the point
        child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def test_a_client_survives_a_fork_on_both_sides(client: Client, greet: Any, db: Any) -> None:
    client.submit_task(greet, name="before")
    parents = sessions(db)

    def child() -> None:
        client.submit_task(greet, name="child")
        gc.collect()
        client.close()

    for _ in range(2):
        assert in_a_child(child) == ""
        client.submit_task(greet, name="parent")
    until(lambda: sessions(db) == parents)  # the parent kept its session; the children's are gone
    names = [row[0] for row in db.execute("SELECT kwargs ->> 'name' FROM tasks ORDER BY id")]
    assert sorted(names) == ["before", "child", "child", "parent", "parent"]


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
def test_the_module_level_functions_survive_a_fork(database_url: str, greet: Any, db: Any) -> None:
    tasklib.init(database_url)
    loop = asyncio.new_event_loop()
    tasklib.submit_task_sync(greet, name="before")
    loop.run_until_complete(_submit(greet))
    parents = sessions(db)

    def child() -> None:
        tasklib.submit_task_sync(greet, name="child")
        asyncio.run(_submit(greet))
        tasklib.close()
        gc.collect()

    assert in_a_child(child) == ""
    tasklib.submit_task_sync(greet, name="parent")
    loop.run_until_complete(_submit(greet))
    assert len(parents) == 2
    until(lambda: sessions(db) == parents)
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (6,)
    loop.close()

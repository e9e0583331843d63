"""Clients as context managers, over several loops, and across a fork."""

from __future__ import annotations

import asyncio
import gc
import os
import traceback
import warnings
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

import tasklib
from tasklib import AsyncClient, Client, Config, Task
from tasklib.errors import NotInitialized
from tests.client.lookup.states import put
from tests.eventually import eventually

# ---- context managers ----


def sessions(db: psycopg.Connection) -> set[int]:
    """The server's processes that serve our clients."""
    found = db.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tasklib client'"
    )
    return {row[0] for row in found}


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
def test_leaving_a_client_closes_its_connections(config: Config, greet: Any, db: Any) -> None:
    with Client(config) as client:
        client.submit_task(greet, name="a")
        assert len(sessions(db)) == 1
    eventually(lambda: not sessions(db))


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
async def test_leaving_an_async_client_closes_its_connections(config: Config, greet: Any, db: Any) -> None:
    async with AsyncClient(config) as client:
        await client.submit_task(greet, name="a")
        assert len(sessions(db)) == 1
    eventually(lambda: not sessions(db))


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
    eventually(lambda: not sessions(db))  # neither loop's: no call had to close them


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
    eventually(lambda: len(sessions(db)) == 1 and sessions(db) != first)
    tasklib.close()
    going.close()


def test_the_synchronous_module_level_functions_work_beside_them(database_url: str, greet: Any, db: Any) -> None:
    tasklib.init(database_url)
    task_id = tasklib.sync.submit_task(greet, name="a")
    put(db, task_id, "completed")
    assert tasklib.sync.wait_for(task_id) == 42
    assert [t.id for t in tasklib.sync.list_tasks()] == [task_id]
    found = tasklib.sync.get_task(task_id)
    assert found is not None
    assert found.id == task_id


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
    assert tasklib.sync.submit_task(greet, name="a"), "even without init()"
    assert tasklib.init().database_url == database_url


def test_a_second_init_replaces_the_first(database_url: str, greet: Any, db: Any) -> None:
    tasklib.init("postgresql://nobody@127.0.0.1:1/nowhere")
    tasklib.init(database_url)
    assert tasklib.sync.submit_task(greet, name="a") == db.execute("SELECT id FROM tasks").fetchone()[0]


def test_close_forgets_the_configuration(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)
    tasklib.init(database_url)
    tasklib.close()
    with pytest.raises(NotInitialized):
        tasklib.sync.list_tasks()


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
    eventually(lambda: sessions(db) == parents)  # the parent kept its session; the children's are gone
    names = [row[0] for row in db.execute("SELECT kwargs ->> 'name' FROM tasks ORDER BY id")]
    assert sorted(names) == ["before", "child", "child", "parent", "parent"]


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
def test_the_module_level_functions_survive_a_fork(database_url: str, greet: Any, db: Any) -> None:
    tasklib.init(database_url)
    loop = asyncio.new_event_loop()
    tasklib.sync.submit_task(greet, name="before")
    loop.run_until_complete(_submit(greet))
    parents = sessions(db)

    def child() -> None:
        tasklib.sync.submit_task(greet, name="child")
        asyncio.run(_submit(greet))
        tasklib.close()
        gc.collect()

    assert in_a_child(child) == ""
    tasklib.sync.submit_task(greet, name="parent")
    loop.run_until_complete(_submit(greet))
    assert len(parents) == 2
    eventually(lambda: sessions(db) == parents)
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (6,)
    loop.close()

"""A call that was not awaited says what to write."""

from __future__ import annotations

import asyncio
import gc
import re
import warnings
from typing import Any
from uuid import UUID

import psycopg
import pytest
from starlette.background import BackgroundTask

import tasklib
from tasklib import AsyncClient, Client, Config

ADVICE = r"tasklib\.get_task\(\.\.\.\) was not awaited\..* Write `await tasklib\.get_task\(\.\.\.\)`, or "
IN_SYNC_CODE = r"`tasklib\.sync\.get_task\(\.\.\.\)` in synchronous code\."


@pytest.fixture
def forgotten() -> Any:
    call: Any = tasklib.get_task("00000000-0000-0000-0000-000000000000")
    yield call
    call.close()


def test_the_attribute_of_a_call_that_was_not_awaited_says_what_to_write(forgotten: Any) -> None:
    with pytest.raises(AttributeError, match=ADVICE + IN_SYNC_CODE):
        _ = forgotten.state
    with pytest.raises(AttributeError, match=ADVICE):
        tasklib.is_completed(forgotten)


@pytest.mark.parametrize("use", [list, len, lambda call: call[0]])
def test_so_does_taking_it_for_a_list(use: Any, forgotten: Any) -> None:
    with pytest.raises(TypeError, match=ADVICE):
        use(forgotten)


def test_python_still_warns_of_it() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tasklib.list_tasks()
        gc.collect()
    assert [str(w.message) for w in caught] == ["coroutine 'list_tasks' was never awaited"]


def test_the_call_is_a_coroutine_to_everything_that_takes_one(config: Config) -> None:
    tasklib.init(config)
    try:
        assert asyncio.run(tasklib.list_tasks()) == []

        async def several_ways() -> None:
            assert await asyncio.create_task(tasklib.list_tasks()) == []
            assert await asyncio.wait_for(tasklib.list_tasks(), 60) == []
            assert await asyncio.gather(tasklib.list_tasks(), tasklib.list_tasks()) == [[], []]
            async with asyncio.TaskGroup() as group:
                listed = group.create_task(tasklib.list_tasks())
            assert listed.result() == []

        asyncio.run(several_ways())
    finally:
        tasklib.close()


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda client, greet: client.get_task("x"), "client.get_task(...)`, or `tasklib.Client(...).get_task(...)`"),
        (lambda client, greet: client.submit_task(greet), "client.submit_task(...)`, or `tasklib.Client(...).submit"),
        (lambda client, greet: client.workers(), "client.workers(...)`, or `tasklib.Client(...).workers(...)`"),
        (
            lambda client, greet: greet.submit("a"),
            "greet.submit(...)`, or `greet.submit_sync(...)` in synchronous",
        ),
        (lambda client, greet: greet.options(queue="q").submit("a"), "greet.submit(...)`, or `greet.submit_sync(...)`"),
    ],
)
def test_clients_and_task_functions_say_it_too(call: Any, advice: str, async_client: AsyncClient, greet: Any) -> None:
    forgotten = call(async_client, greet)
    with pytest.raises(AttributeError, match=re.escape(f"Write `await {advice}")):
        _ = forgotten.state
    forgotten.close()


async def test_on_an_asynchronous_connection_there_is_nothing_else_to_write(greet: Any, database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        forgotten: Any = greet.on(connection).submit("a")
        with pytest.raises(AttributeError, match=r"Write `await greet\.on\(connection\)\.submit\(\.\.\.\)`\.$"):
            _ = forgotten.hex
        forgotten.close()


def test_an_id_that_was_not_awaited_is_named_where_it_is_used(client: Client, greet: Any) -> None:
    forgotten: Any = greet.submit("a")
    with pytest.raises(tasklib.InvalidOption, match=r"a task id is a UUID, not <greet\.submit\(\.\.\.\), not awaited>"):
        client.get_task(forgotten)
    forgotten.close()


def test_who_asks_before_calling_is_told_that_the_call_is_awaited(async_client: AsyncClient, greet: Any) -> None:
    calls = [tasklib.get_task, tasklib.submit_task, async_client.workers, async_client.submit_task, greet.submit]
    calls += [greet.options(queue="q").submit, tasklib.TaskId(UUID(int=1)).result, tasklib.TaskId(UUID(int=1)).get]
    assert [call for call in calls if not asyncio.iscoroutinefunction(call)] == []
    assert not asyncio.iscoroutinefunction(greet.submit_sync)


async def test_a_background_task_of_a_web_framework_submits(config: Config, greet: Any, db: psycopg.Connection) -> None:
    tasklib.init(config)
    await BackgroundTask(greet.submit, name="a")()
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (1,)
    tasklib.close()

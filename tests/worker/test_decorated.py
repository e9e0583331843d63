"""Task functions under decorators of the program's own, and functions that return what must be awaited."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import tasklib
from tasklib import AsyncClient, Config, task
from tests.worker.watching import burst


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """As most are written: it knows nothing of async functions."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def run_here(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return asyncio.run(function(*args, **kwargs))

    return wrapper


def forgets_to_await(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def is_on_the_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


async def outcome(config: Config, name: str, **kwargs: Any) -> str:
    async with AsyncClient(config) as client:
        id_ = await client.submit_task(name, max_retries=0, **kwargs)
        await burst(config)
        row = await client.get_task(id_)
    assert row is not None
    return str(row.result if row.state == "completed" else row.error)


async def test_async_function_under_a_plain_decorator_runs_on_the_loop(config: Config) -> None:
    @task
    @logged
    async def send(to: str) -> str:
        await asyncio.sleep(0)
        return f"{to} {is_on_the_main_thread()}"

    assert await outcome(config, "send", to="a") == "a True"


async def test_transactional_async_function_under_a_plain_decorator_gets_its_connection(config: Config) -> None:
    @task(transactional=True)
    @logged
    async def count(connection: Any) -> int:
        cursor = await connection.execute("SELECT 42")
        return (await cursor.fetchone())[0]

    assert await outcome(config, "count") == "42"


async def test_decorator_that_runs_the_async_function_itself_is_told_what_to_write(config: Config) -> None:
    @task
    @run_here
    async def send() -> bool:
        return is_on_the_main_thread()

    assert (await outcome(config, "send")).endswith(
        "send is a plain function around an async one, so it was called on the worker's loop. If it runs the async one "
        "itself, say so: @task(executor='thread')."
    )

    @task(name="in a thread", executor="thread")
    @run_here
    async def told() -> bool:
        return is_on_the_main_thread()

    assert await outcome(config, "in a thread") == "False"


async def test_coroutine_as_a_result_says_what_to_write(config: Config, recwarn: pytest.WarningsRecorder) -> None:
    async def work() -> None: ...

    @task
    def hands_on() -> Any:
        return work()

    @task
    @forgets_to_await
    async def forgotten() -> None: ...

    for name in ("hands_on", "forgotten"):
        assert (await outcome(config, name)).endswith(
            "the function returned a coroutine that was not awaited. Make it `async def` and write `return await ...`; "
            "a decorator around an async function has to do the same."
        )
    assert not [w for w in recwarn if "never awaited" in str(w.message)]


async def test_generator_under_a_decorator_gives_its_items_or_says_what_to_write(config: Config) -> None:
    @task
    @logged
    def numbers() -> Iterator[int]:
        yield from (1, 2, 3)

    @task
    @logged
    async def pages() -> AsyncIterator[int]:
        yield 1

    assert await outcome(config, "numbers") == "[1, 2, 3]"
    assert (await outcome(config, "pages")).endswith("write `return [item async for item in ...]`.")


async def test_inline_mode_awaits_what_a_plain_decorator_returns() -> None:
    @task
    @logged
    async def send(to: str) -> str:
        return to

    with tasklib.testing.inline():
        assert await tasklib.wait_for(await send.submit(to="a")) == "a"

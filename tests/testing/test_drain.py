"""drain(): the tasks of a database, run to the end without waiting."""

from __future__ import annotations

import asyncio
import threading

import psycopg
import pytest

import tasklib
from tasklib import Config, Reject, Retry, TaskState, current_task, task
from tasklib.client import default
from tasklib.testing import Drained, drain, drain_sync


async def test_due_tasks_are_run_and_counted(app: Config) -> None:
    @task
    def good(n: int) -> int:
        return n

    @task
    async def bad() -> None:
        raise Reject("never")

    first = await good.submit(1)
    second = await bad.submit()
    drained = await drain()
    assert drained.counts == {"completed": 1, "dead_letter": 1}
    assert drained.states == {first: TaskState.COMPLETED, second: TaskState.DEAD_LETTER}
    assert drained.ids == [first, second]
    assert drained.attempts == 2
    assert list(drained.errors) == [second]
    assert "Reject: never" in drained.errors[second]
    assert await tasklib.wait_for(first) == 1


async def test_what_tasks_submit_is_run_too(app: Config) -> None:
    @task
    async def count_down(n: int) -> None:
        if n:
            await count_down.submit(n - 1)

    await count_down.submit(4)
    assert (await drain()).counts == {"completed": 5}


async def test_nothing_to_do_is_an_empty_summary(app: Config) -> None:
    drained = await drain()
    assert (drained, drained.counts, drained.ids) == (Drained(), {}, [])
    assert repr(drained) == "<Drained nothing, attempts=0>"


def test_blocking_form_works_without_a_loop(app: Config) -> None:
    @task
    async def outer() -> None:
        await inner.submit()

    @task
    def inner() -> str:
        return threading.current_thread().name

    outer.submit_sync()
    assert drain_sync().counts == {"completed": 2}


async def test_blocking_form_works_on_a_running_loop(app: Config) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @task
    async def look() -> None:
        loops.append(asyncio.get_running_loop())

    await look.submit()
    assert drain_sync().counts == {"completed": 1}
    assert loops != [asyncio.get_running_loop()]


def test_blocking_form_closes_what_tasks_opened_on_its_loop(app: Config) -> None:
    @task
    async def outer() -> None:
        await inner.submit()

    @task
    def inner() -> None: ...

    outer.submit_sync()
    assert drain_sync().counts == {"completed": 2}
    assert [client for client in default._async_clients.values() if client.database._idle] == []


async def test_failing_a_test_inside_a_task_ends_the_attempt(app: Config) -> None:
    @task(max_retries=0)
    async def check() -> None:
        pytest.fail("seen from inside")

    await check.submit()
    drained = await drain()
    assert drained.counts == {"dead_letter": 1}
    assert "seen from inside" in repr(drained)


async def test_failed_tasks_wait_for_their_retry_unless_told_otherwise(app: Config) -> None:
    @task(max_retries=2)
    def third_time_lucky() -> int:
        if current_task().attempt < 3:
            raise ValueError("not yet")
        return current_task().attempt

    task_id = await third_time_lucky.submit()
    drained = await drain()
    assert drained.states == {task_id: TaskState.FAILED}
    assert "not yet" in drained.errors[task_id]
    drained = await drain(until_done=True)
    assert (drained.states, drained.attempts, drained.errors) == ({task_id: TaskState.COMPLETED}, 2, {})
    assert await tasklib.wait_for(task_id) == 3


async def test_until_done_uses_up_the_retries_and_not_one_more(app: Config) -> None:
    @task(max_retries=3)
    def fail() -> None:
        raise Retry(in_=86400, reason="later")

    task_id = await fail.submit()
    drained = await drain(until_done=True)
    assert (drained.counts, drained.attempts) == ({"dead_letter": 1}, 4)
    assert "later" in repr(drained)
    row = await tasklib.get_task(task_id)
    assert row is not None
    assert (row.retry_count, len(row.history or [])) == (3, 4)


async def test_until_done_leaves_tasks_that_are_meant_for_later(app: Config) -> None:
    @task
    def remind() -> None: ...

    await remind.options(delay_seconds=3600).submit()
    assert (await drain()).counts == {}
    assert (await drain(until_done=True)).counts == {}


async def test_with_delayed_runs_later_tasks_in_the_order_of_their_times(app: Config) -> None:
    ran: list[str] = []

    @task
    def note(what: str) -> None:
        ran.append(what)

    for what, delay in (("third", 86400 * 365), ("first", 60), ("second", 3600), ("now", 0)):
        await note.options(delay_seconds=delay).submit(what)
    assert (await drain(with_delayed=True)).counts == {"completed": 4}
    assert ran == ["now", "first", "second", "third"]


async def test_with_delayed_runs_retries_and_what_tasks_submit_for_later(app: Config) -> None:
    @task(max_retries=1)
    async def chain(n: int) -> None:
        if current_task().attempt == 1:
            raise ValueError("first try")
        if n:
            await chain.options(delay_seconds=600).submit(n - 1)

    await chain.options(delay_seconds=600).submit(3)
    drained = await drain(with_delayed=True)
    assert (drained.counts, drained.attempts) == ({"completed": 4}, 8)


async def test_a_task_that_was_hurried_is_not_promoted(app: Config, db: psycopg.Connection) -> None:
    ran: list[str] = []

    @task
    def note(what: str) -> None:
        ran.append(what)

    await note.options(delay_seconds=60, priority=-10).submit("low")
    await note.options(delay_seconds=86400, priority=100).submit("high")
    await drain(with_delayed=True)
    assert ran == ["high", "low"]

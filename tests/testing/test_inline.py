"""Inline mode: submitting runs the task, through every kind of connection, without a database."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

import tasklib
from tasklib import current_task, task
from tasklib.client.default import default_client
from tasklib.testing import Inline, inline


@pytest.fixture(autouse=True)
def _no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)


@pytest.fixture
def ran() -> Iterator[Inline]:
    with inline() as ran:
        yield ran


class Order(BaseModel):
    number: int
    placed: datetime


def test_every_blocking_call_runs_the_task(ran: Inline) -> None:
    @task
    def double(n: int) -> int:
        return 2 * n

    ids = [
        tasklib.sync.submit_task(double, n=1),
        tasklib.sync.submit_task("double", kwargs={"n": 2}),
        double.submit_sync(3),
        double.options(queue="q").submit_sync(n=4),
        *tasklib.sync.submit_many(double, [{"n": 5}, {"n": 6}]),
        *tasklib.sync.submit_many([double.bind(7)]),
    ]
    assert all(isinstance(id_, UUID) for id_ in ids)
    assert [t.result for t in ran.tasks] == [2, 4, 6, 8, 10, 12, 14]
    assert [t.id for t in ran.tasks] == ids


async def test_every_awaitable_call_runs_the_task() -> None:
    @task
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    async with inline() as ran:
        ids = [
            await tasklib.submit_task(double, n=1),
            await double.submit(2),
            await double.options(queue="q").submit(n=3),
            *await tasklib.submit_many(double, [{"n": 4}, {"n": 5}]),
        ]
    assert [t.result for t in ran.tasks] == [2, 4, 6, 8, 10]
    assert [t.id for t in ran.tasks] == ids


def test_async_function_runs_in_a_blocking_call(ran: Inline) -> None:
    @task
    async def where() -> bool:
        await asyncio.sleep(0)
        return threading.current_thread() is threading.main_thread()

    assert tasklib.sync.wait_for(where.submit_sync()) is True


async def test_async_function_runs_in_a_helper_thread_when_a_blocking_call_is_made_on_a_loop(ran: Inline) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @task
    async def where() -> bool:
        loops.append(asyncio.get_running_loop())
        return threading.current_thread() is threading.main_thread()

    assert tasklib.sync.wait_for(where.submit_sync()) is False
    assert loops != [asyncio.get_running_loop()]


async def test_async_function_runs_on_the_loop_of_an_awaitable_call(ran: Inline) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @task
    async def where() -> None:
        loops.append(asyncio.get_running_loop())

    await where.submit()
    assert loops == [asyncio.get_running_loop()]


async def test_sync_function_may_run_a_loop_of_its_own_as_on_a_worker(ran: Inline) -> None:
    @task
    def own_loop() -> int:
        return asyncio.run(asyncio.sleep(0, 42))

    assert await tasklib.wait_for(await own_loop.submit()) == 42


def test_arguments_travel_through_json(ran: Inline) -> None:
    seen: list[Any] = []

    @task
    def note(order: Order, pair: tuple[int, int], extra: Any = None) -> None:
        seen.extend([order, pair, extra])

    order = Order(number=1, placed=datetime(2030, 1, 1, tzinfo=UTC))
    note.submit_sync(order, (1, 2), extra=[3, 4])
    assert seen == [order, (1, 2), [3, 4]]
    assert seen[0] is not order
    assert ran.tasks[0].kwargs == {
        "order": {"number": 1, "placed": "2030-01-01T00:00:00Z"},
        "pair": [1, 2],
        "extra": [3, 4],
    }


def test_result_travels_through_json(ran: Inline) -> None:
    @task
    def order() -> Order:
        return Order(number=1, placed=datetime(2030, 1, 1, tzinfo=UTC))

    task_id = order.submit_sync()
    assert task_id.result() == tasklib.sync.wait_for(task_id) == order()
    stored = task_id.get()
    assert (stored.state, stored.result) == ("completed", {"number": 1, "placed": "2030-01-01T00:00:00Z"})


async def test_results_can_be_asked_for_with_await(ran: Inline) -> None:
    @task
    async def answer() -> int:
        return 42

    task_id = await answer.submit()
    assert await tasklib.wait_for(str(task_id)) == 42
    stored = await tasklib.get_task(task_id)
    assert stored is not None
    assert stored.completed_at is not None


def test_row_has_the_options_and_defaults_a_table_would_have(ran: Inline) -> None:
    @task(queue="mail", max_retries=7, tags={"team": "a"})
    def send() -> None: ...

    before = datetime.now(UTC)
    task_id = send.options(
        priority="high", delay_seconds=60, required_capabilities=["smtp"], trace_context={"traceparent": "00-x"}
    ).submit_sync()
    row = tasklib.sync.get_task(task_id)
    assert row is not None
    assert (row.queue, row.priority, row.max_retries, row.timeout_seconds) == ("mail", 100, 7, 300)
    assert (row.tags, row.required_capabilities) == ({"team": "a"}, ["smtp"])
    assert row.trace_context == {"traceparent": "00-x"}
    assert row.scheduled_at - row.created_at == timedelta(seconds=60)
    assert row.created_at >= before
    assert ran.tasks[0].options == {
        "queue": "mail",
        "max_retries": 7,
        "tags": {"team": "a"},
        "priority": "high",
        "delay_seconds": 60,
        "required_capabilities": ("smtp",),
        "trace_context": {"traceparent": "00-x"},
    }


def test_current_task_is_known_inside_and_forgotten_outside(ran: Inline) -> None:
    @task(timeout_seconds=30, max_retries=2)
    def look() -> dict[str, Any]:
        me = current_task()
        me.progress({"done": 0.5})
        assert me.seconds_left is not None
        return {"id": me.id, "attempt": me.attempt, "of": me.max_attempts, "left": 0 < me.seconds_left <= 30}

    task_id = look.submit_sync()
    assert ran.tasks[0].result == {"id": str(task_id), "attempt": 1, "of": 3, "left": True}
    assert ran.tasks[0].progress == {"done": 0.5}
    with pytest.raises(RuntimeError, match="outside of a running task"):
        current_task()


async def test_task_that_submits_tasks_keeps_its_own_context(ran: Inline) -> None:
    @task
    def inner_sync() -> str:
        return current_task().name

    @task
    async def inner() -> str:
        return current_task().name

    @task
    async def outer() -> list[str]:
        names = [await tasklib.wait_for(await inner.submit()), current_task().name]
        inner_sync.submit_sync()
        inner.submit_sync()
        return [*names, current_task().name]

    await outer.submit()
    assert [t.name for t in ran.tasks] == ["outer", "inner", "inner_sync", "inner"]
    assert [t.result for t in ran.tasks] == [["inner", "outer", "outer"], "inner", "inner_sync", "inner"]


def test_context_variables_reach_the_task_and_changes_end_with_it(ran: Inline) -> None:
    user = contextvars.ContextVar("user", default="nobody")

    @task
    def change() -> str:
        before = user.get()
        user.set("task")
        return before

    user.set("test")
    change.submit_sync()
    assert (ran.tasks[0].result, user.get()) == ("test", "test")


def test_who_acts_on_behalf_of_others_runs_tasks_and_sees_only_its_own(ran: Inline) -> None:
    @task
    def double(n: int) -> int:
        return 2 * n

    client = default_client()
    ann = client.on_behalf_of("ann", submitted_by="user-17", only_own=True)
    hers, mine = ann.submit_task(double, n=1), client.submit_task(double, n=2)
    assert [t.result for t in ran.tasks] == [2, 4]
    found = ann.get_task(hers)
    assert found is not None
    assert found.submitted_by == "user-17"
    assert ann.wait_for(hers) == client.wait_for(hers) == 2
    assert ann.get_task(mine) is None

"""Tasks that share a call of their function: `@task(batch=Batch(...))`."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tasklib
from tasklib import AsyncClient, Batch, Config, InvalidTaskFunction, Reject, TaskExecutionError, task, testing
from tasklib.events import TaskEnded, TaskStarted
from tests.worker.watching import working

LONG = 600.0


async def test_the_function_gets_a_list_and_each_task_its_own_result(config: Config) -> None:
    calls: list[list[int]] = []

    @task(batch=Batch(max=5, wait=LONG))
    async def double(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        return [2 * n for n in numbers]

    client = AsyncClient(config)
    async with working(config, concurrency=20) as watched:
        ids = [await client.submit_task(double, numbers=n) for n in range(10)]
        await watched.until(TaskEnded, count=10)
    assert [(await client.get_task(id_)).result for id_ in ids] == [2 * n for n in range(10)]  # type: ignore[union-attr]
    assert [len(call) for call in calls] == [5, 5]
    assert sorted(n for call in calls for n in call) == list(range(10))


async def test_a_batch_that_is_not_full_is_called_when_its_time_is_up(config: Config) -> None:
    calls: list[list[str]] = []

    @task(batch=Batch(max=100, wait=0.05))
    def store(lines: list[str]) -> None:
        calls.append(lines)

    client = AsyncClient(config)
    async with working(config) as watched:
        await client.submit_many(store, [{"lines": line} for line in "abc"])
        await watched.until(TaskEnded, count=3)
    assert sorted(line for call in calls for line in call) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_one_task_fails_and_is_retried_alone(config: Config, kind: str) -> None:
    def outcomes(numbers: list[int]) -> list[int | Exception]:
        calls.update(numbers)
        first = {1: ValueError("not yet"), 2: Reject("never")}
        return [first.get(n, n) if calls[n] == 1 else n for n in numbers]

    calls: Counter[int] = Counter()
    if kind == "async":

        @task(name="check", batch=Batch(max=3, wait=0.2), max_retries=2)
        async def check(numbers: list[int]) -> list[int | Exception]:
            return outcomes(numbers)
    else:

        @task(name="check", batch=Batch(max=3, wait=0.2), max_retries=2, executor="thread")
        def check(numbers: list[int]) -> list[int | Exception]:
            return outcomes(numbers)

    client = AsyncClient(config)
    async with working(config.with_changes(base_retry_delay_seconds=0.05)) as watched:
        well, again, never = await client.submit_many("check", [{"numbers": n} for n in (0, 1, 2)])
        await watched.ended(again, "completed")
        await watched.ended(never, "dead_letter")
        await watched.ended(well, "completed")
    rows = [await client.get_task(id_) for id_ in (well, again, never)]
    assert [(row.state, row.retry_count) for row in rows if row] == [
        ("completed", 0),
        ("completed", 1),
        ("dead_letter", 0),
    ]
    assert calls == {0: 1, 1: 2, 2: 1}
    assert rows[2] is not None
    assert rows[2].error is not None
    assert "never" in rows[2].error


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([1], "returned 1 results for 2 tasks"),
        ("ab", "returned a str"),
        (OSError("the disk is full"), "the disk is full"),
    ],
    ids=["too few", "no list", "it raises"],
)
async def test_all_tasks_of_a_call_that_went_wrong_fail(config: Config, returned: Any, said: str) -> None:
    @task(name="wrong", batch=Batch(max=2, wait=LONG), max_retries=0)
    async def wrong(items: list[int]) -> Any:
        if isinstance(returned, Exception):
            raise returned
        return returned

    client = AsyncClient(config)
    async with working(config) as watched:
        ids = await client.submit_many("wrong", [{"items": 1}, {"items": 2}])
        for id_ in ids:
            await watched.ended(id_, "dead_letter")
    for id_ in ids:
        row = await client.get_task(id_)
        assert row is not None
        assert said in str(row.error)


async def test_a_task_that_is_cancelled_leaves_the_batch_and_the_others_go_on(config: Config) -> None:
    calls: list[list[int]] = []

    @task(name="gather", batch=Batch(max=3, wait=LONG))
    async def gather(items: list[int]) -> None:
        calls.append(items)

    client = AsyncClient(config)
    async with working(config) as watched:
        ids = await client.submit_many("gather", [{"items": 1}, {"items": 2}])
        await watched.until(TaskStarted, count=2)
        await client.cancel_task(ids[0])
        await watched.ended(ids[0], "cancelled")
        await client.submit_many("gather", [{"items": 3}, {"items": 4}])
        await watched.until(TaskEnded, count=4)
    assert [sorted(call) for call in calls] == [[2, 3, 4]]


async def test_a_call_whose_tasks_have_all_timed_out_is_stopped(config: Config) -> None:
    stopped = asyncio.Event()

    @task(name="hang", batch=Batch(max=2, wait=LONG), max_retries=0, timeout_seconds=1)
    async def hang(items: list[int]) -> None:
        try:
            await asyncio.sleep(LONG)
        finally:
            stopped.set()

    client = AsyncClient(config)
    async with working(config) as watched:
        ids = await client.submit_many("hang", [{"items": 1}, {"items": 2}])
        for id_ in ids:
            await watched.ended(id_, "dead_letter")
        async with asyncio.timeout(60):
            await stopped.wait()


async def test_arguments_are_those_of_one_item(config: Config) -> None:
    @task(name="typed", batch=Batch())
    async def typed(paths: list[Path]) -> None: ...

    client = AsyncClient(config)
    with pytest.raises(TaskExecutionError, match="paths"):
        await client.submit_task("typed", paths=[1])
    tasklib.init(config)
    row = await client.get_task(await typed.submit(Path("/a")))
    assert row is not None
    assert row.kwargs == {"paths": "/a"}
    await typed([Path("/a"), Path("/b")])  # the function itself


def test_inline_a_batch_has_one_task_and_does_not_wait() -> None:
    calls: list[list[int]] = []

    @task(name="inlined", batch=Batch(max=10, wait=LONG))
    async def inlined(items: list[int]) -> list[int]:
        calls.append(items)
        return [10 * item for item in items]

    @task(name="inlined.sync", batch=Batch(max=10, wait=LONG))
    def inlined_sync(items: list[int]) -> list[int]:
        calls.append(items)
        return items

    with testing.inline() as ran:
        tasklib.sync.submit_task(inlined, items=4)
        tasklib.sync.submit_task(inlined_sync, items=5)
    assert calls == [[4], [5]]
    assert [each.result for each in ran.tasks] == [40, 5]


async def test_a_task_that_crashed_before_runs_alone(config: Config, db: psycopg.Connection) -> None:
    """In a child process, as a batch of one."""
    tasklib.tasks.registry.register(lone)
    client = AsyncClient(config)
    id_ = await client.submit_task("tests.batches.lone", items=7)
    db.execute("UPDATE tasks SET crash_count = 2")
    async with working(config.with_changes(crash_limit=3), concurrency=2) as watched:
        await watched.ended(id_, "completed")
    row = await client.get_task(id_)
    assert row is not None
    assert row.result == 1


@task(name="tests.batches.lone", batch=Batch(max=10, wait=LONG))
async def lone(items: list[int]) -> list[int]:
    return [len(items)] * len(items)


def _no_list(items: int) -> None: ...
def _two(a: list[int], b: list[int]) -> None: ...
def _one_result(items: list[int]) -> int:
    return 1


def _connected(connection: psycopg.Connection, items: list[int]) -> None: ...
def _plain(items: list[int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "settings", "said"),
    [
        (_no_list, {}, "must be a list"),
        (_two, {}, "takes one parameter"),
        (_one_result, {}, "a result or an exception for each item"),
        (_connected, {}, "can't be transactional"),
        (_plain, {"transactional": True}, "can't be transactional"),
        (_plain, {"durable": True}, "can't be durable"),
        (_plain, {"executor": "process"}, "can't run in a process"),
        (_plain, {"executor": "loop"}, "needs an async function"),
        (_plain, {"batch": 10}, "must be a Batch"),
    ],
)
def test_what_can_not_be_a_batch_is_refused(function: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidTaskFunction, match=said):
        task(**{"batch": Batch(), **settings})(function)  # type: ignore[call-overload]  # wrong on purpose


@pytest.mark.parametrize("values", [{"max": 0}, {"max": 1.5}, {"max": True}, {"wait": -1}, {"wait": "2"}])
def test_bounds_of_a_batch_are_checked(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidTaskFunction, match="Batch: "):
        Batch(**values)

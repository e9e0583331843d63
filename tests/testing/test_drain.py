"""drain(): the tasks of a database, run to the end without waiting."""

from __future__ import annotations

import asyncio
import threading

import psycopg
import pytest

import tasklib
from tasklib import Config, Reject, Retry, TaskState, current_task, task
from tasklib.client import default
from tasklib.errors import ConfigError, NotInitialized, SchemaError, TaskLibError
from tasklib.testing import Drained, drain, drain_sync, inline, submitted


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
    assert [client for client in default._async_clients.values() if client._database._idle] == []


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


async def test_unknown_names_are_left_as_they_are(app: Config) -> None:
    task_id = await tasklib.submit_task("elsewhere", registered_elsewhere=True, delay_seconds=60)
    before = await tasklib.get_task(task_id)
    assert (await drain(with_delayed=True)).counts == {}
    assert await tasklib.get_task(task_id) == before


async def test_only_the_given_queues_are_drained(app: Config) -> None:
    @task
    def nothing() -> None: ...

    mail = await nothing.options(queue="mail").submit()
    await nothing.options(queue="other", delay_seconds=60).submit()
    assert (await drain(queues=["mail"], with_delayed=True)).ids == [mail]
    assert (await drain()).counts == {}


async def test_every_capability_is_there_unless_some_are_named(app: Config) -> None:
    @task(required_capabilities=["gpu"])
    def render() -> None: ...

    @task(required_capabilities=["gpu", "ssd"])
    async def plan() -> None:
        await render.options(required_capabilities=["new"]).submit()

    ids = [await render.submit(), await plan.submit()]
    assert (await drain(capabilities=["gpu"])).ids == ids[:1]
    assert (await drain(capabilities=[])).counts == {}
    assert (await drain()).counts == {"completed": 2}


async def test_concurrency_lets_tasks_meet(app: Config) -> None:
    barrier = asyncio.Barrier(3)

    @task(timeout_seconds=30)
    async def meet() -> None:
        await barrier.wait()

    await tasklib.submit_many(meet, [{}] * 3)
    assert (await drain(concurrency=3)).counts == {"completed": 3}


async def test_tasks_that_never_end_are_stopped_at_the_limit(app: Config) -> None:
    @task
    async def for_ever() -> None:
        await for_ever.options(delay_seconds=60).submit()

    await for_ever.submit()
    with pytest.raises(AssertionError, match=r"made 7 attempts.*for_ever \(7\).*drain\(limit=70\)"):
        await drain(with_delayed=True, limit=7)


async def test_limit_that_is_just_enough_is_no_error(app: Config) -> None:
    @task
    def nothing() -> None: ...

    await tasklib.submit_many(nothing, [{}] * 3)
    assert (await drain(limit=3)).counts == {"completed": 3}
    await tasklib.submit_many(nothing, [{}] * 3)
    with pytest.raises(AssertionError, match="made 2 attempts"):
        await drain(limit=2)


async def test_task_locked_by_somebody_else_is_left_to_them(app: Config, db: psycopg.Connection) -> None:
    @task
    def nothing() -> None: ...

    task_id = await nothing.submit()
    with db.transaction():
        db.execute("SELECT FROM tasks WHERE id = %s FOR UPDATE", [task_id])
        assert (await drain()).counts == {}
    assert (await drain()).counts == {"completed": 1}


async def test_database_can_be_named(config: Config) -> None:
    @task
    def nothing() -> None: ...

    with tasklib.Client(config) as client:
        client.submit_task(nothing)
        assert (await drain(config)).counts == {"completed": 1}
        client.submit_task(nothing)
        assert (await drain(config.database_url)).counts == {"completed": 1}


async def test_schema_of_its_own_is_drained(empty_database_url: str) -> None:
    from tasklib.migrations import migrate

    @task
    def nothing() -> None: ...

    migrate(tasklib.init(Config(empty_database_url, schema="Jobs")))
    await nothing.options(delay_seconds=60, required_capabilities=["gpu"]).submit()
    assert (await drain(with_delayed=True)).counts == {"completed": 1}


async def test_without_a_database_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, empty_database_url: str
) -> None:
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)
    with pytest.raises(NotInitialized, match=r"tasklib\.init"):
        await drain()
    with pytest.raises(NotInitialized, match=r"tasklib\.init"):
        submitted("anything")
    with pytest.raises(SchemaError, match="tasklib migrate"):
        await drain(empty_database_url)
    with inline(), pytest.raises(TaskLibError, match="in inline mode there are none"):
        await drain()


async def test_wrong_arguments_are_refused_as_by_a_worker(app: Config) -> None:
    with pytest.raises(ConfigError, match="queues must be a list"):
        await drain(queues="mail")
    with pytest.raises(ConfigError, match="concurrency"):
        await drain(concurrency=0)

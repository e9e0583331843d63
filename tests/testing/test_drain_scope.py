"""drain(): which tasks it takes, from where, and how many."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

import tasklib
from tasklib import Config, task
from tasklib.errors import ConfigError, NotInitialized, SchemaError, TaskLibError
from tasklib.testing import drain, inline, submitted


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


async def test_task_locked_by_another_session_is_left_to_it(app: Config, db: psycopg.Connection) -> None:
    @task
    def nothing() -> None: ...

    task_id = await nothing.submit()
    with db.transaction():
        db.execute("SELECT FROM tasks WHERE id = %s FOR UPDATE", [task_id])
        assert (await drain()).counts == {}
    assert (await drain()).counts == {"completed": 1}


@pytest.mark.direct(reason="PgBouncer takes no options in a URL")
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

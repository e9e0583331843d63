"""`async with Worker(...)`: it works beside the block, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

import tasklib
from tasklib import Config, Worker, task
from tasklib.errors import SchemaError


@pytest.fixture(autouse=True)
def _initialised(config: Config) -> Iterator[None]:
    tasklib.init(config)
    yield
    tasklib.close()


def alive(db: psycopg.Connection) -> int:
    found = db.execute("SELECT count(*) FROM workers WHERE status <> 'dead'").fetchone()
    return found[0] if found else 0


async def test_the_worker_works_beside_the_block_with_the_configuration_of_init(db: psycopg.Connection) -> None:
    @task
    async def double(n: int) -> int:
        return 2 * n

    async with Worker(signals=False) as worker:
        assert alive(db) == 1, "it has started when the block begins"
        assert await (await double.submit(4)).result(timeout=60) == 8
        assert worker.id
    assert alive(db) == 0


async def test_what_runs_at_the_end_of_the_block_is_finished() -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()

    @task
    async def slow() -> str:
        began.set()
        await goes_on.wait()
        return "finished"

    async with Worker(signals=False):
        task_id = await slow.submit()
        await began.wait()
        asyncio.get_running_loop().call_soon(goes_on.set)
    assert await task_id.result(timeout=0) == "finished"


async def test_a_worker_that_was_told_to_stop_in_the_block_is_not_hurried() -> None:
    @task
    async def work() -> int:
        return 1

    async with Worker(signals=False) as worker:
        await (await work.submit()).result(timeout=60)
        worker.stop()
    async with worker:  # and may start again
        assert await (await work.submit()).result(timeout=60) == 1


async def test_an_error_of_the_block_comes_out_and_the_worker_stops(db: psycopg.Connection) -> None:
    with pytest.raises(ZeroDivisionError):
        async with Worker(signals=False):
            _ = 1 / 0
    assert alive(db) == 0


async def test_a_worker_that_cannot_start_raises_before_the_block(empty_database_url: str) -> None:
    with pytest.raises(SchemaError, match="tasklib migrate"):
        async with Worker(empty_database_url, signals=False):
            pytest.fail("the block ran")

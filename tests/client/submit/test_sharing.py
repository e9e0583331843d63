"""One client for many threads and coroutines."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, Task
from tests.client.submit.stored import count, rows
from tests.eventually import soon


def sessions(db: psycopg.Connection) -> int:
    """How many connections our clients have."""
    found = db.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s",
        ["tasklib client"],
    ).fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
def test_threads_share_a_client_and_its_few_connections(config: Config, greet: Any, db: Any) -> None:
    with Client(config.with_changes(max_connections=2)) as client, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: client.submit_task(greet, name=str(n)), range(60)))
        opened = sessions(db)
    assert 1 <= opened <= 2
    assert count(db) == 60


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
async def test_coroutines_share_a_client_and_its_few_connections(config: Config, greet: Any, db: Any) -> None:
    async with AsyncClient(config.with_changes(max_connections=2)) as client:
        await asyncio.gather(*(client.submit_task(greet, name=str(n)) for n in range(60)))
        opened = sessions(db)
    assert 1 <= opened <= 2
    assert count(db) == 60


async def test_a_cancelled_submission_leaves_a_client_that_works(config: Config, greet: Any, db: Any) -> None:
    async with AsyncClient(config.with_changes(max_connections=1)) as client:
        await client.submit_task(greet, name="a")
        db.execute("BEGIN")
        db.execute("LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE")
        waiting = asyncio.create_task(client.submit_task(greet, name="b"))
        await soon(lambda: db.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone(), "it waits for the lock")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        db.execute("COMMIT")
        await client.submit_task(greet, name="c")
    assert [r["kwargs"]["name"] for r in rows(db)] == ["a", "c"]


def test_a_client_can_be_used_again_after_close(client: Client, greet: Any, db: Any) -> None:
    client.submit_task(greet, name="a")
    client.close()
    client.submit_task(greet, name="b")
    assert count(db) == 2


def test_pgbouncer_mode_prepares_nothing(config: Config, greet: Any, db: Any) -> None:
    with Client(config.with_changes(prepared_statements=False)) as client:
        for _ in range(10):
            client.submit_task(greet, name="a")
        with client.database.connection() as connection:
            assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    assert count(db) == 10


def test_a_task_can_be_read_back_as_submitted(client: Client, greet: Any) -> None:
    task_id = client.submit_task(greet, name="a", tags={"x": 1})
    found = client.get_task(task_id)
    assert isinstance(found, Task)
    assert (found.id, found.kwargs, found.tags) == (task_id, {"name": "a"}, {"x": 1})

"""Claims whose answer was lost: what they leased to the worker is given back as it was, and runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tasklib import AsyncClient, Config, task
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.errors import DatabaseUnavailable
from tests.eventually import soon
from tests.worker.watching import working


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of these names take effect, and their answer is lost: each name once."""
    names: list[str] = []
    original = ReconnectingConnection.run

    async def run(self: ReconnectingConnection, query: Query[Any], *then: Callable[[Any], None]) -> Any:
        if query.name not in names:
            return await original(self, query, *then)
        answer = await original(self, query)
        if answer:
            names.remove(query.name)
            raise DatabaseUnavailable("the answer was lost")
        return answer

    monkeypatch.setattr(ReconnectingConnection, "run", run)
    return names


async def test_tasks_leased_by_a_claim_without_an_answer_run_without_waiting_for_the_lease(
    config: Config, db: psycopg.Connection, lose: list[str]
) -> None:
    @task(max_retries=0)
    async def work() -> None: ...

    client = AsyncClient(config)
    ids = await client.submit_many(work, [{} for _ in range(5)])
    lose.append("claim")
    async with working(config, concurrency=5) as watched:
        for task_id in ids:
            await watched.ended(task_id, "completed")
    assert not lose
    rows = db.execute("SELECT DISTINCT lease_token, retry_count, crash_count FROM tasks").fetchall()
    assert rows == [(2, 0, 0)], "each was leased twice, and nothing was counted"


async def test_a_task_leased_by_a_guess_without_an_answer_runs(
    config: Config, db: psycopg.Connection, lose: list[str]
) -> None:
    @task(max_retries=0)
    async def work() -> None: ...

    client = AsyncClient(config)
    async with working(config, poll_interval_seconds=1000.0) as watched:
        await watched.ended(await client.submit_task(work), "completed")
        await watched.asleep()
        lose.append("claim_next")
        await watched.ended(await client.submit_task(work), "completed")
    assert not lose
    assert db.execute("SELECT max(retry_count), max(crash_count), max(lease_token) FROM tasks").fetchone() == (0, 0, 2)


async def test_what_the_worker_runs_is_not_given_back(config: Config, db: psycopg.Connection, lose: list[str]) -> None:
    import asyncio

    go_on = asyncio.Event()

    @task
    async def long() -> None:
        await go_on.wait()

    @task
    async def short() -> None: ...

    client = AsyncClient(config)
    held = await client.submit_task(long)
    async with working(config, concurrency=2, poll_interval_seconds=0.1) as watched:
        await soon(lambda: watched.worker.taken == 1, "it runs")
        lose.append("claim")
        await watched.ended(await client.submit_task(short), "completed")
        go_on.set()
        await watched.ended(held, "completed")
    assert db.execute("SELECT lease_token FROM tasks WHERE name = 'long'").fetchone() == (1,)


async def test_a_claim_that_commits_after_the_worker_has_looked_is_found_too(
    config: Config, db: psycopg.Connection, lose: list[str]
) -> None:
    @task(max_retries=0)
    async def work() -> None: ...

    client = AsyncClient(config)
    async with working(config, poll_interval_seconds=0.1) as watched:
        lose.append("claim")
        await watched.ended(await client.submit_task(work), "completed")
        db.execute(
            "INSERT INTO tasks (name, state, worker_id, locked_until, started_at, lease_token) "
            "VALUES ('work', 'running', %s, now() + interval '10 min', now(), 1)",
            (watched.worker.id,),
        )
        late = db.execute("SELECT id FROM tasks WHERE state = 'running'").fetchone()
        assert late is not None
        await watched.ended(late[0], "completed")


async def test_while_an_answer_is_missing_the_worker_says_that_it_may_have_begun_everything(
    config: Config, db: psycopg.Connection, lose: list[str]
) -> None:
    @task
    async def work() -> None: ...

    client = AsyncClient(config)
    async with working(config, concurrency=3) as watched:
        assert db.execute("SELECT may_begin FROM worker_registrations").fetchone() == (3,)
        lose.append("claim")
        await watched.ended(await client.submit_task(work), "completed")
        assert db.execute("SELECT may_begin FROM worker_registrations").fetchone() == (None,)


async def test_what_a_claim_brought_that_was_not_waited_for_is_given_back_when_the_worker_leaves(
    config: Config, db: psycopg.Connection
) -> None:
    async with working(config) as watched:
        db.execute(
            "INSERT INTO tasks (name, state, worker_id, locked_until, started_at, lease_token) "
            "VALUES ('work', 'running', %s, now() + interval '10 min', now(), 1)",
            (watched.worker.id,),
        )
    assert db.execute("SELECT state, crash_count FROM tasks").fetchone() == ("pending", 0)

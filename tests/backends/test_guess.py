"""An idle worker that is notified asks for the next task of the lane it served last, then looks at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tasklib import AsyncClient, Config, task
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingConnection
from tests.worker.watching import working

NEVER = 1000.0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that claim something, in the order in which they are sent."""
    names: list[str] = []
    original = ReconnectingConnection.run

    async def noted(self: ReconnectingConnection, query: Query[Any], *then: Callable[[Any], None]) -> Any:
        if query.name.startswith("claim"):
            names.append(query.name)
        return await original(self, query, *then)

    monkeypatch.setattr(ReconnectingConnection, "run", noted)
    return names


async def test_the_next_task_of_the_same_lane_takes_one_small_statement(config: Config, asked: list[str]) -> None:
    @task
    async def ping() -> None: ...

    client = AsyncClient(config)
    async with working(config, poll_interval_seconds=NEVER) as watched:
        for first in ("claim", "claim_next", "claim_next"):
            await watched.asleep()
            asked.clear()
            await watched.ended(await client.submit_task(ping), "completed")
            assert asked[0] == first


async def test_a_wrong_guess_costs_one_statement_and_loses_nothing(config: Config, asked: list[str]) -> None:
    @task
    async def usual() -> None: ...

    @task(priority=5)  # another lane
    async def unusual() -> None: ...

    client = AsyncClient(config)
    async with working(config, poll_interval_seconds=NEVER) as watched:
        await watched.ended(await client.submit_task(usual), "completed")
        await watched.asleep()
        asked.clear()
        await watched.ended(await client.submit_task(unusual), "completed")
        assert asked[:2] == ["claim_next", "claim"]


async def test_whatever_came_with_the_news_runs(config: Config) -> None:
    @task
    async def ping(n: int) -> None: ...

    client = AsyncClient(config)
    async with working(config, poll_interval_seconds=NEVER) as watched:
        await watched.ended(await client.submit_task(ping, n=0), "completed")
        await watched.asleep()
        items = [ping.options(priority=n % 3).bind(n=n) for n in range(30)]
        for task_id in await client.submit_many(items):
            await watched.ended(task_id, "completed")


async def test_the_last_slot_is_never_given_to_a_guess(config: Config, asked: list[str]) -> None:
    @task
    async def ping() -> None: ...

    client = AsyncClient(config)
    async with working(config, poll_interval_seconds=NEVER, concurrency=1) as watched:
        for _ in range(3):
            await watched.asleep()
            await watched.ended(await client.submit_task(ping), "completed")
    assert "claim_next" not in asked


async def test_a_lost_connection_in_the_middle_of_a_guess_is_survived(
    config: Config, db: psycopg.Connection, asked: list[str]
) -> None:
    @task
    async def ping() -> None: ...

    client = AsyncClient(config)
    async with working(config, poll_interval_seconds=NEVER) as watched:
        await watched.ended(await client.submit_task(ping), "completed")
        await watched.asleep()
        asked.clear()
        db.execute("""SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                      WHERE datname = current_database() AND application_name = 'tasklib worker tasks'""")
        await watched.ended(await client.submit_task(ping), "completed")
        assert asked[0] == "claim_next"


async def test_a_guess_that_is_never_answered_ends_with_the_worker(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    @task
    async def ping() -> None: ...

    asked, over = asyncio.Event(), asyncio.Event()
    original = ReconnectingConnection.run

    async def silent(self: ReconnectingConnection, query: Query[Any], *then: Callable[[Any], None]) -> Any:
        if query.name == "claim_next":
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                over.set()
        return await original(self, query, *then)

    monkeypatch.setattr(ReconnectingConnection, "run", silent)
    client = AsyncClient(config)
    async with working(config.with_changes(statement_timeout_seconds=1.0), poll_interval_seconds=NEVER) as watched:
        await watched.ended(await client.submit_task(ping), "completed")
        await watched.asleep()
        await client.submit_task(ping)
        await asked.wait()
    assert over.is_set()

"""Waiting for a task goes on through an outage of the database that ends before the timeout."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, task
from tasklib.db.query import Query
from tasklib.errors import DatabaseUnavailable, WaitTimeout
from tests.eventually import eventually, soon
from tests.server.outages import way_to

DONE = """UPDATE tasks SET state = 'completed', completed_at = now(), result = '{"value": 42}'"""


@task
def outage_work() -> int:
    return 42


def test_wait_with_a_timeout_outlives_an_outage(config: Config, db: psycopg.Connection) -> None:
    found: list[object] = []
    with way_to(config) as way, Client(way.config) as client:
        task_id = client.submit_task(outage_work)
        way.refuse()
        waiting = threading.Thread(target=lambda: found.append(client.wait_for(task_id, timeout=60)))
        waiting.start()
        eventually(lambda: way.refused >= 4, "it tries again and again")
        db.execute(DONE)
        way.speak()
        waiting.join(60)
    assert found == [42]


def test_wait_without_a_timeout_outlives_an_outage_once_it_has_reached_the_database(
    config: Config, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []
    looked = threading.Event()
    with way_to(config) as way, Client(way.config) as client:
        task_id = client.submit_task(outage_work)
        run = client.database.run

        def watched(query: Query[Any]) -> Any:
            answer = run(query)
            looked.set()
            return answer

        monkeypatch.setattr(client.database, "run", watched)
        waiting = threading.Thread(target=lambda: found.append(client.wait_for(task_id)))
        waiting.start()
        looked.wait(60)
        way.refuse()
        eventually(lambda: way.refused >= 4, "it tries again and again")
        db.execute(DONE)
        way.speak()
        waiting.join(60)
    assert found == [42]


async def test_awaited_wait_outlives_an_outage(config: Config, db: psycopg.Connection) -> None:
    with way_to(config) as way:
        client = AsyncClient(way.config)
        task_id = await client.submit_task(outage_work)
        way.refuse()
        waiting = asyncio.create_task(client.wait_for(task_id, timeout=60))
        await soon(lambda: way.refused >= 4, "it tries again and again")
        db.execute(DONE)
        way.speak()
        assert await waiting == 42
        client.close()


def test_wait_whose_time_is_up_in_an_outage_says_that_the_database_is_away(config: Config) -> None:
    with way_to(config) as way, Client(way.config) as client:
        task_id = client.submit_task(outage_work)
        way.refuse()
        with pytest.raises(DatabaseUnavailable):
            client.wait_for(task_id, timeout=0.2)
        way.speak()
        with pytest.raises(WaitTimeout):
            client.wait_for(task_id, timeout=0.2)


def test_wait_without_a_timeout_for_a_database_that_was_never_there_raises() -> None:
    with Client("postgresql://app@127.0.0.1:1/app") as client, pytest.raises(DatabaseUnavailable):
        client.wait_for("0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f")

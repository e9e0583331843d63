"""Rows and texts that the database refuses, or that are out of range: one of them ends no worker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import tasklib.migrations
from tasklib import AsyncClient, Config, Worker, current_task, task
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.errors import SchemaError
from tasklib.events import DatabaseLost
from tasklib.migrations import migrate, revisions
from tasklib.testing.databases import with_database
from tests.worker.watching import burst, working


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def other_encoding(request: pytest.FixtureRequest, server_url: str) -> Iterator[Config]:
    """An empty database in another encoding."""
    name = f"tasklib_test_{uuid.uuid4().hex[:10]}"
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(
            f"CREATE DATABASE {name} ENCODING '{request.param}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0".encode()
        )
        yield Config(with_database(server_url, name), base_retry_delay_seconds=0.0, retry_jitter=0.0)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing looked at the encoding."""
    for module in (revisions, tasklib.migrations):
        monkeypatch.setattr(module, "require_utf8", lambda encoding, database: None)


def test_a_database_that_can_not_store_every_text_is_not_migrated(other_encoding: Config) -> None:
    with pytest.raises(SchemaError, match="createdb -E UTF8"):
        migrate(other_encoding)


async def test_a_worker_refuses_a_database_that_can_not_store_every_text(
    other_encoding: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tasklib.migrations, "require_utf8", lambda encoding, database: None)
        migrate(other_encoding)
    with pytest.raises(SchemaError, match="createdb -E UTF8"):
        await Worker(other_encoding, burst=True).run()


async def test_an_error_that_can_not_be_stored_is_escaped_and_costs_its_neighbours_nothing(
    other_encoding: Config, unchecked: None
) -> None:
    migrate(other_encoding)

    @task(max_retries=0)
    async def fails(text: str) -> None:
        raise ValueError(text)

    @task(max_retries=0)
    async def reports() -> str:
        current_task().progress("\N{ROCKET}")
        return "\N{ROCKET}"

    @task
    async def works() -> str:
        return "plain"

    client = AsyncClient(other_encoding)
    ids = [await client.submit_task(fails, text=text) for text in ("plain", "\u00e9", "1")]
    async with await psycopg.AsyncConnection.connect(other_encoding.database_url, autocommit=True) as db:
        await db.execute("SET client_encoding = UTF8")
        await db.execute('UPDATE tasks SET kwargs = \'{"text": "5 EUR"}\' WHERE id = %s', (ids[2],))
    bad = await client.submit_task(reports)
    good = [await client.submit_task(works) for _ in range(5)]

    @task(name="dear", max_retries=0)
    async def dear() -> None:
        raise ValueError("5 \N{EURO SIGN}")

    dear_id = await client.submit_task(dear)
    watched = await burst(other_encoding)
    for task_id in good:
        assert (await watched.ended(task_id)).state == "completed"
    for task_id in (*ids, dear_id):
        assert (await watched.ended(task_id)).state == "dead_letter"
    assert (await watched.ended(bad)).state in ("dead_letter", "completed")
    row = await client.get_task(dear_id)
    assert row is not None
    assert "ValueError: 5 " in str(row.error)


async def test_a_claim_that_meets_a_row_it_can_not_count_with_is_tried_again(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's own limits keep such rows out; whatever they miss must not end worker after worker."""
    run, refused = ReconnectingConnection.run, asyncio.Event()

    async def refuse_first(self: ReconnectingConnection, query: Query[Any], *rest: Any) -> Any:
        if query.name == "claim" and not refused.is_set():
            refused.set()
            raise psycopg.errors.DatetimeFieldOverflow("cannot subtract infinite timestamps")
        return await run(self, query, *rest)

    monkeypatch.setattr(ReconnectingConnection, "run", refuse_first)

    @task
    async def work() -> None: ...

    client = AsyncClient(config)
    task_id = await client.submit_task(work)
    async with working(config) as watched:
        await watched.ended(task_id, "completed")
        assert "infinite" in watched.all(DatabaseLost)[0].reason


LONG, DEEP = "1" + "0" * 5000, "[" * 3000 + "]" * 3000
ODD_JSON = ["[]", '"text"', "1", "null", "{}", '{"traceparent": 5}', '{"traceparent": []}', LONG, DEEP]


async def test_whatever_json_a_row_has_its_attempt_ends_and_the_worker_lives(
    config: Config, db: psycopg.Connection
) -> None:
    @task(max_retries=0)
    async def work(n: int = 0) -> None: ...

    for odd in ODD_JSON:
        db.execute(
            """INSERT INTO tasks (name, kwargs, args, tags, trace_context, progress, history, max_retries)
               SELECT 'work', jsonb_build_object('n', odd), odd, jsonb_build_object('t', odd), odd, odd, odd, 0
               FROM (SELECT %s::jsonb) AS given (odd)""",
            (odd,),
        )
    await burst(config)
    found = db.execute("SELECT state, left(error, 300) FROM tasks WHERE state NOT IN ('completed', 'dead_letter')")
    assert found.fetchall() == []

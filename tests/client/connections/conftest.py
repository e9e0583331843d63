"""Shared by the tests of callers' connections: one of each kind, its caller, and the notifications of a worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from tasklib import AsyncClient, Client, task
from tests.client.connections.opening import ASYNC_CONNECTIONS, CONNECTIONS, Address, Opened


@pytest.fixture(autouse=True)
def _django_next_to_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests run on an event loop, where Django refuses to work unless told otherwise.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")


@pytest.fixture(params=list(CONNECTIONS))
def connection_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def enter(connection_kind: str, address: Address) -> Callable[[], AbstractAsyncContextManager[Opened]]:
    return lambda: CONNECTIONS[connection_kind](address)


@dataclass
class Caller:
    """Submits through a connection, synchronously or asynchronously as it needs."""

    client: Client
    async_client: AsyncClient
    name: str

    async def submit_task(self, *args: Any, **options: Any) -> UUID:
        if self.name in ASYNC_CONNECTIONS:
            return await self.async_client.submit_task(*args, **options)
        return self.client.submit_task(*args, **options)

    async def submit_many(self, *args: Any, **options: Any) -> list[UUID]:
        if self.name in ASYNC_CONNECTIONS:
            return await self.async_client.submit_many(*args, **options)
        return self.client.submit_many(*args, **options)


@pytest.fixture
def caller(client: Client, async_client: AsyncClient, connection_kind: str) -> Caller:
    return Caller(client, async_client, connection_kind)


@pytest.fixture
def listener(database_url: str, db: psycopg.Connection) -> Iterator[psycopg.Connection]:
    db.execute(
        "INSERT INTO workers (id, names, asleep) VALUES ('s', NULL, true) ON CONFLICT DO NOTHING"
    )  # else there is no worker to notify
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("LISTEN tasklib_public")
        yield connection


def heard(listener: psycopg.Connection, db: psycopg.Connection) -> list[str]:
    """The notifications since the last call: all that come before a mark of our own."""
    db.execute("NOTIFY tasklib_public, 'mark'")
    payloads: list[str] = []
    for notification in listener.notifies(timeout=120):
        if notification.payload == "mark":
            return payloads
        payloads.append(notification.payload)
    raise AssertionError("the mark never came")


async def done(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def ids(db: psycopg.Connection) -> list[UUID]:
    return [row[0] for row in db.execute("SELECT id FROM tasks ORDER BY id")]


def row_without_id_and_times(db: psycopg.Connection, task_id: UUID) -> dict[str, Any]:
    """A task's row, its times as distances from its creation."""
    with db.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute("SELECT * FROM tasks WHERE id = %s", [task_id]).fetchone()
    assert row is not None
    created_at = row.pop("created_at")
    del row["id"]
    return {k: v - created_at if isinstance(v, datetime) else v for k, v in row.items()}


@pytest.fixture
def greet() -> Any:
    @task(max_retries=7, tags={"team": "post"})
    def greet(name: str, when: datetime | None = None) -> None: ...

    return greet

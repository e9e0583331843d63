"""One database for the tests of a file, emptied after each: a database of its own would cost a test 0.1 s."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tasklib import AsyncClient, Client, Config
from tests.conftest import _with_database


@pytest.fixture(scope="module")
def shared_database_url(server_url: str, template_database: str) -> Iterator[str]:
    """A migrated database that the tests of one file share."""
    name = f"tasklib_client_{uuid.uuid4().hex[:10]}"
    copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template_database))
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(copy)
        # Nothing here has to survive a power failure; what is visible to whom stays the same.
        admin.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(sql.Identifier(name)))
        yield _with_database(server_url, name)
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="module")
def janitor(shared_database_url: str) -> Iterator[psycopg.Connection]:
    """The connection that looks after the shared database between tests."""
    with psycopg.connect(shared_database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def database_url(shared_database_url: str, janitor: psycopg.Connection) -> Iterator[str]:
    yield shared_database_url
    janitor.execute("DELETE FROM tasks")


@pytest.fixture
def client(config: Config) -> Iterator[Client]:
    with Client(config) as client:
        yield client


@pytest.fixture
def async_client(config: Config) -> Iterator[AsyncClient]:
    client = AsyncClient(config)
    yield client
    client.close()


@pytest.fixture
def address(database_url: str) -> dict[str, str]:
    """Where the database is, for drivers that want the parts: host, port, user, password, dbname."""
    parts = {name: str(value) for name, value in conninfo_to_dict(database_url).items()}
    return {"host": "127.0.0.1", "port": "5432", "user": "postgres", "password": "", **parts}


class Either:
    """A sync or an async client; every call is awaited either way."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self.client, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            answer = method(*args, **kwargs)
            return await answer if inspect.isawaitable(answer) else answer

        return call


@pytest.fixture(params=[Client, AsyncClient], ids=["sync", "async"])
def either(request: pytest.FixtureRequest, config: Config) -> Iterator[Either]:
    """The two clients in turn: what one does, the other does too."""
    client = request.param(config)
    yield Either(client)
    client.close()

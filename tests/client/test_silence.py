"""A link that stays open and never answers is not waited for without end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config
from tasklib.db.connect import connect
from tasklib.errors import DatabaseUnavailable


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def backend_of_the_client(db: psycopg.Connection) -> int:
    found = db.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'tasklib client' AND datname = current_database()"
    ).fetchone()
    assert found is not None
    pid: int = found[0]
    require_local(pid)
    return pid


def require_local(pid: int) -> None:
    if not os.path.exists(f"/proc/{pid}"):
        pytest.skip("the server is not on this machine")


def test_a_statement_on_a_silent_link_ends_with_an_error(config: Config) -> None:
    with connect(config.with_changes(statement_timeout_seconds=0.3)) as connection:
        pid = connection.info.backend_pid
        if connection.execute("SELECT inet_server_addr()").fetchone() == (None,) or not os.path.exists(f"/proc/{pid}"):
            pytest.skip("the server is not on this machine")
        with frozen(pid), pytest.raises(psycopg.OperationalError, match=r"no answer within 0\.3 s"):
            connection.execute("SELECT 1")
        connection.close()


def test_a_migration_may_take_as_long_as_it_takes(config: Config) -> None:
    with connect(config.with_changes(statement_timeout_seconds=0.1), patience=60) as connection:
        connection.execute("SELECT pg_sleep(0.4)")


def test_a_client_gives_up_on_a_link_that_fell_silent_and_opens_another(config: Config, db: psycopg.Connection) -> None:
    with Client(config.with_changes(statement_timeout_seconds=0.3)) as client:
        assert client.pauses() == []  # opens a connection
        pid = backend_of_the_client(db)
        with frozen(pid):
            assert client.pauses() == []  # repeated on a new connection: reading twice does no harm


def test_what_may_not_be_repeated_says_that_the_database_is_away(config: Config, db: psycopg.Connection) -> None:
    with Client(config.with_changes(statement_timeout_seconds=0.3)) as client:
        assert client.pauses() == []
        pid = backend_of_the_client(db)
        with frozen(pid), pytest.raises(DatabaseUnavailable, match="or doesn't answer"):
            client.pause(queue="mail")


async def the_backend(client: AsyncClient) -> int:
    """The one that answers this client's next call."""
    async with client._database.connection() as connection:
        pid = connection.info.backend_pid
    require_local(pid)
    return pid


async def test_asynchronous_clients_are_no_more_patient(config: Config, db: psycopg.Connection) -> None:
    async with AsyncClient(config.with_changes(statement_timeout_seconds=0.5)) as client:
        with frozen(await the_backend(client)):
            await client.pauses()  # on a new connection
        with frozen(await the_backend(client)), pytest.raises(DatabaseUnavailable, match="or doesn't answer"):
            await client.pause(queue="silence")
        with frozen(await the_backend(client)):  # sent again, as ids are made here
            ids = await client.submit_many("away", [{}] * 150, registered_elsewhere=True)
        assert db.execute("SELECT count(*) FROM tasks WHERE id = ANY (%s)", (ids,)).fetchone() == (150,)


async def test_a_free_connection_is_not_waited_for_without_end(config: Config) -> None:
    async with AsyncClient(config.with_changes(statement_timeout_seconds=0.5, max_connections=1)) as client:
        async with client._database.connection():  # somebody else has it
            with pytest.raises(DatabaseUnavailable, match="max_connections"):
                await client.pauses()
        await client.pauses()

"""A link that stays open and never answers is not waited for without end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config
from tasklib.client.effects import once
from tasklib.db.connect import connect
from tasklib.errors import DatabaseUnavailable
from tasklib.store import fleet


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def backend_of_the_client(db: psycopg.Connection) -> int:
    found = db.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'tasklib client' AND datname = current_database() "
        "ORDER BY backend_start DESC"
    ).fetchone()
    assert found is not None
    pid: int = found[0]
    if not os.path.exists(f"/proc/{pid}"):
        pytest.skip("the server is not on this machine")
    return pid


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
        before = time.monotonic()
        with frozen(pid):
            assert client.pauses() == []  # repeated on a new connection: reading twice does no harm
        assert time.monotonic() - before < 60


def test_what_may_not_be_repeated_says_that_the_database_is_away(config: Config, db: psycopg.Connection) -> None:
    with Client(config.with_changes(statement_timeout_seconds=0.3)) as client:
        assert client.pauses() == []
        pid = backend_of_the_client(db)
        with frozen(pid), pytest.raises(DatabaseUnavailable, match="or doesn't answer"):
            client.pause(queue="mail")


async def test_an_async_client_gives_up_on_a_link_that_fell_silent(config: Config, db: psycopg.Connection) -> None:
    async with AsyncClient(config.with_changes(statement_timeout_seconds=0.3)) as client:
        before = await client.workers()
        with frozen(backend_of_the_client(db)):
            assert await client.workers() == before  # on a new connection
        with frozen(backend_of_the_client(db)), pytest.raises(DatabaseUnavailable, match="or doesn't answer"):
            await client.resume(queue="mail")
        await client.workers()
        without_a_cursor = fleet.sleeps("nobody", True)
        with frozen(backend_of_the_client(db)), pytest.raises(DatabaseUnavailable, match=r"no answer within 0\.3 s"):
            await client.perform(once(without_a_cursor))

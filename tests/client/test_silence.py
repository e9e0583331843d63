"""A reconnecting that stays open and never answers is not waited for without end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config
from tasklib.backends.postgres.heartbeat import PostgresHeartbeatConnection
from tasklib.db.connect import connect
from tasklib.db.database import AsyncDatabase, Database
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.db.timeouts import TimedConnection, within
from tasklib.errors import DatabaseUnavailable

HASTY = 3.0
"""Seconds for a statement: a server that is only busy answers within them."""


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
    with connect(config.with_changes(statement_timeout_seconds=HASTY)) as connection:
        pid = connection.info.backend_pid
        if connection.execute("SELECT inet_server_addr()").fetchone() == (None,) or not os.path.exists(f"/proc/{pid}"):
            pytest.skip("the server is not on this machine")
        with frozen(pid), pytest.raises(psycopg.OperationalError, match="no answer within 3 s"):
            connection.execute("SELECT 1")
        connection.close()


def test_a_migration_may_take_as_long_as_it_takes(config: Config) -> None:
    with connect(config.with_changes(statement_timeout_seconds=0.1), statement_timeout=60) as connection:
        connection.execute("SELECT pg_sleep(0.4)")


def test_a_client_gives_up_on_a_link_that_fell_silent_and_opens_another(config: Config, db: psycopg.Connection) -> None:
    with Client(config.with_changes(statement_timeout_seconds=HASTY)) as client:
        # Nothing about what is paused: a statement that another test froze may have been done after all.
        client.pauses()  # opens a connection
        pid = backend_of_the_client(db)
        with frozen(pid):
            client.pauses()  # repeated on a new connection: reading twice does no harm
        assert backend_of_the_client(db) != pid


def test_what_may_not_be_repeated_says_that_the_database_is_away(config: Config, db: psycopg.Connection) -> None:
    with Client(config.with_changes(statement_timeout_seconds=HASTY)) as client:
        client.pauses()
        pid = backend_of_the_client(db)
        with frozen(pid), pytest.raises(DatabaseUnavailable, match="or doesn't answer"):
            client.pause(queue="mail")


async def the_backend(client: AsyncClient) -> int:
    """The one that answers this client's next call."""
    async with client.database.connection() as connection:
        pid = connection.info.backend_pid
    require_local(pid)
    return pid


async def test_asynchronous_clients_are_no_more_patient(config: Config, db: psycopg.Connection) -> None:
    async with AsyncClient(config.with_changes(statement_timeout_seconds=HASTY)) as client:
        with frozen(await the_backend(client)):
            await client.pauses()  # on a new connection
        with frozen(await the_backend(client)), pytest.raises(DatabaseUnavailable, match="or doesn't answer"):
            await client.pause(queue="silence")
        with frozen(await the_backend(client)):  # sent again, as ids are made here
            ids = await client.submit_many("away", [{}] * 150, registered_elsewhere=True)
        assert db.execute("SELECT count(*) FROM tasks WHERE id = ANY (%s)", (ids,)).fetchone() == (150,)


@pytest.mark.parametrize("all_text", [True, False], ids=["straight to libpq", "by a cursor"])
@pytest.mark.parametrize("runner", ["Database", "AsyncDatabase", "ReconnectingConnection", "heartbeat"])
async def test_no_longer_limit_follows_when_the_time_of_a_statement_is_up(
    config: Config, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, runner: str, all_text: bool
) -> None:
    """The server is told to cancel without waiting for its answer: psycopg's own ways would wait for seconds."""

    def waits(*_: object, **__: object) -> None:
        raise AssertionError("the server is asked to cancel, and its answer waited for")

    for name in ("cancel_safe", "_try_cancel"):
        monkeypatch.setattr(psycopg.AsyncConnection, name, waits)
        monkeypatch.setattr(psycopg.Connection, name, waits)
    hasty = config.with_changes(statement_timeout_seconds=HASTY)
    query = Query("now", {}, lambda rows: rows[0][0], all_text=all_text)
    run, close = _runner(runner, hasty)
    try:
        await run(query)
        [(pid,)] = db.execute("""SELECT pid FROM pg_stat_activity WHERE datname = current_database()
                                 AND application_name LIKE 'tasklib %'""").fetchall()
        require_local(pid)
        with frozen(pid), pytest.raises(DatabaseUnavailable, match="no answer within 3 s"):
            await run(query)
        assert await run(query), "on another connection"
    finally:
        close()


def _runner(kind: str, config: Config) -> tuple[Callable[[Query[Any]], Awaitable[Any]], Callable[[], None]]:
    """Each way in which TaskLib runs a statement, and how to close it."""
    match kind:
        case "Database":
            database = Database(config)
            return partial(asyncio.to_thread, database.run), database.close
        case "AsyncDatabase":
            asynchronous = AsyncDatabase(config)
            return asynchronous.run, asynchronous.close
        case "ReconnectingConnection":
            reconnecting = ReconnectingConnection(config, "control")
            return reconnecting.run, reconnecting.drop
        case _:
            heartbeats = PostgresHeartbeatConnection(config)
            return partial(asyncio.to_thread, heartbeats._run), heartbeats.drop


def test_the_time_of_a_statement_is_up_by_the_clock_and_not_by_how_often_it_was_looked_at(config: Config) -> None:
    now = [100.0]

    def endless() -> Iterator[str]:
        while True:
            yield "read"

    with connect(config, statement_timeout=5.0) as connection:
        assert isinstance(connection, TimedConnection)
        steps = within(connection, endless(), clock=lambda: now[0])  # type: ignore[arg-type]
        assert next(steps) == "read"
        now[0] = 105.0
        assert steps.send(None) == "read"
        now[0] = 106.0
        assert steps.send("ready") == "read", "an answer that comes late is still an answer"
        with pytest.raises(psycopg.OperationalError, match="no answer within 5 s"):
            steps.send(None)


async def test_a_free_connection_is_not_waited_for_without_end(config: Config) -> None:
    async with AsyncClient(config.with_changes(statement_timeout_seconds=HASTY, max_connections=1)) as client:
        async with client.database.connection():  # somebody else has it
            with pytest.raises(DatabaseUnavailable, match="max_connections"):
                await client.pauses()
        await client.pauses()

"""A worker that starts waits for a database that is about to be there, and says what it waits for."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tasklib import Client, Config, Worker, task
from tasklib.db.startup import is_final
from tasklib.errors import DatabaseUnavailable, SchemaError
from tasklib.events import DatabaseAwaited, DatabaseLost, WorkerStarted
from tasklib.server.services import Services
from tasklib.server.settings import ServerSettings
from tasklib.worker.membership import Membership
from tests.eventually import soon
from tests.server.outages import way_to
from tests.worker.watching import Watched


async def test_worker_started_in_an_outage_waits_says_so_and_works_when_it_is_over(config: Config) -> None:
    @task
    async def after_the_outage() -> str:
        return "done"

    with Client(config) as client, way_to(config) as way:
        task_id = client.submit_task(after_the_outage)
        way.refuse()
        watched = Watched(Worker(way.config))
        watched.finished = asyncio.create_task(watched.worker.run())
        awaited = await watched.until(DatabaseAwaited)
        assert "can't connect to PostgreSQL at" in awaited.reason
        assert awaited.seconds == 60
        await soon(lambda: way.refused >= 3, "it tries again and again")
        assert not watched.all(WorkerStarted)
        way.speak()
        await watched.ended(task_id, "completed")
        assert len(watched.all(DatabaseAwaited)) == 1, "once for one reason"
        assert not watched.all(DatabaseLost), "nothing was lost"
        watched.worker.stop()
        await watched.finished


async def test_worker_gives_up_at_the_limit_and_names_it(config: Config) -> None:
    with way_to(config) as way:
        way.refuse()
        with pytest.raises(DatabaseUnavailable, match=r"after waiting for 0\.2 s \(startup_timeout_seconds\)"):
            await Worker(way.config.with_changes(startup_timeout_seconds=0.2)).run()


async def test_worker_without_a_limit_to_wait_fails_at_once(config: Config) -> None:
    with way_to(config) as way:
        way.refuse()
        watched = Watched(Worker(way.config.with_changes(startup_timeout_seconds=0)))
        with pytest.raises(DatabaseUnavailable):
            await watched.worker.run()
        assert not watched.all(DatabaseAwaited)


@pytest.mark.parametrize("wrong", [{"dbname": "no_such_database"}, {"user": "no_such_user", "password": "wrong"}])
async def test_worker_does_not_wait_for_what_only_a_person_can_mend(config: Config, wrong: dict[str, Any]) -> None:
    watched = Watched(Worker(config.with_changes(database_url=make_conninfo(config.database_url, **wrong))))
    with pytest.raises(DatabaseUnavailable, match="Check that"):
        await watched.worker.run()
    assert not watched.all(DatabaseAwaited)


async def test_worker_does_not_wait_for_tables_that_were_never_made(empty_database_url: str) -> None:
    watched = Watched(Worker(Config(empty_database_url)))
    with pytest.raises(SchemaError, match="tasklib migrate"):
        await watched.worker.run()
    assert not watched.all(DatabaseAwaited)


@pytest.mark.parametrize(
    "reason",
    [
        "connection refused",
        "FATAL: the database system is starting up",
        "FATAL: the database system is shutting down",
        "FATAL: the database system is in recovery mode",
        "FATAL: sorry, too many clients already",
        "session is read-only",
        "could not translate host name",
    ],
)
def test_condition_that_passes_is_waited_for(reason: str) -> None:
    assert not is_final(reason)


async def test_server_started_in_an_outage_waits_as_well(config: Config, db: psycopg.Connection) -> None:
    with way_to(config) as way:
        way.refuse()
        opening = asyncio.create_task(Services.open(way.config, ServerSettings(no_auth=True)))
        await soon(lambda: way.refused >= 2, "it tries again")
        way.speak()
        await (await opening).close()


@pytest.mark.parametrize("step", ["_register", "join"])
async def test_worker_stopped_while_it_starts_leaves_no_registration(
    step: str, config: Config, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered = asyncio.Event()
    original = getattr(Membership, step)

    async def register_and_hang(self: Membership) -> None:
        await original(self)
        registered.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Membership, step, register_and_hang)
    before = set(threading.enumerate())
    worker = Worker(config)
    running = asyncio.create_task(worker.run())
    await registered.wait()
    assert db.execute("SELECT count(*) FROM workers").fetchone() == (1,)
    worker.stop()
    await running
    assert db.execute("SELECT count(*) FROM workers").fetchone() == (0,)
    assert "tasklib-heartbeat" not in {thread.name for thread in set(threading.enumerate()) - before}

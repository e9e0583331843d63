"""TaskLib through PgBouncer in transaction mode: the short version of `make test-pgbouncer`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, task
from tasklib.cli.demo_screen import DemoScreen
from tasklib.cli.demo_stage import open_stage
from tasklib.errors import DatabaseUnavailable, TaskCancelled
from tasklib.events import TaskStarted, Woken
from tasklib.tasks import registry
from tasklib.testing.databases import with_database
from tests.pgbouncer import PROGRAM, Pooler, pgbouncer
from tests.worker.watching import PATIENCE, burst, working

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed"),
    pytest.mark.direct(reason="it has a pooler of its own"),
]


@task(name="pooler_double")
async def double(n: int) -> int:
    return 2 * n


@task(name="pooler_forever")
async def forever() -> None:
    await asyncio.Event().wait()


@task(name="pooler_note", transactional=True)
async def note(text: str, connection: psycopg.AsyncConnection) -> None:
    await connection.execute("INSERT INTO notes VALUES (%s)", (text,))


@pytest.fixture(autouse=True)
def _known() -> None:
    for function in (double, forever, note):
        registry.register(function)


@pytest.fixture(scope="module")
def pooler(server_url: str) -> Iterator[Pooler]:
    # Two connections to the server for all of a worker's and a client's: none is kept by one of them.
    with pgbouncer(server_url, default_pool_size="2") as running:
        yield running


@pytest.fixture
def through(pooler: Pooler, config: Config) -> Config:
    """The configuration behind a pooler, with LISTEN on a direct connection."""
    return config.with_changes(
        database_url=with_database(pooler.url(), config.database_url.rpartition("/")[2]),
        listen_database_url=config.database_url,
        prepared_statements=False,
        poll_interval_seconds=1000.0,
    )


async def test_tasks_are_submitted_run_and_waited_for(through: Config) -> None:
    async with AsyncClient(through) as client:
        one = await client.submit_task(double, n=21)
        several = await client.submit_many(double, [{"n": n} for n in range(20)])
        copied = await client.submit_many(double, [{"n": n} for n in range(300)])
        once = [await client.submit_task(double, n=1, idempotency_key="k") for _ in range(2)]
        await burst(through, concurrency=20)
        assert await client.wait_for(one, timeout=PATIENCE) == 42
        assert [await client.wait_for(i, timeout=PATIENCE) for i in several] == [2 * n for n in range(20)]
        assert {t.state for t in await client.list_tasks(name="pooler_double", limit=1000)} == {"completed"}
        assert len(copied) == 300
        assert once[0] == once[1]


def test_synchronous_calls_too(through: Config) -> None:
    with Client(through) as client:
        ids = [client.submit_task(double, n=n) for n in range(20)]
        assert len(set(client.submit_many(double, [{"n": n} for n in range(300)]) + ids)) == 320
        assert client.explain_task(ids[0]).reasons
        assert client.cancel_tasks(name="pooler_double").cancelled == 320
        client.replay_task(ids[0])
        assert client.pause(queue="default")
        assert client.resume(queue="default")


async def test_a_task_in_a_transaction_commits_with_its_writes(through: Config, db: psycopg.Connection) -> None:
    db.execute("CREATE TABLE notes (text text)")
    async with AsyncClient(through) as client:
        task_id = await client.submit_task(note, text="done")
        await burst(through)
        await client.wait_for(task_id, timeout=PATIENCE)
    assert db.execute("SELECT text FROM notes").fetchall() == [("done",)]


async def test_a_notification_on_a_direct_connection_wakes_and_cancels(through: Config) -> None:
    async with AsyncClient(through) as client, working(through, concurrency=2) as worker:
        await worker.asleep()
        task_id = await client.submit_task(forever)
        await worker.until(TaskStarted)
        await client.cancel_task(task_id)
        with pytest.raises(TaskCancelled):
            await client.wait_for(task_id, timeout=PATIENCE)
    assert "notify" in {woken.by for woken in worker.all(Woken)}


async def test_polling_alone_will_do(through: Config) -> None:
    polling = through.with_changes(listen=False, listen_database_url=None, poll_interval_seconds=0.2)
    async with AsyncClient(polling) as client, working(polling):
        task_id = await client.submit_task(double, n=4)
        assert await client.wait_for(task_id, timeout=PATIENCE) == 8


async def test_a_database_that_is_away_behind_a_pooler_is_unavailable(config: Config, server_url: str) -> None:
    nowhere = with_database(server_url, "postgres").replace(server_url.rpartition(":")[2], "1/postgres")
    with pgbouncer(nowhere, waits_for_login=False, server_login_retry="1", query_wait_timeout="2") as away:
        lost = config.with_changes(database_url=away.url(), prepared_statements=False, connect_timeout_seconds=5.0)
        async with AsyncClient(lost) as client:
            with pytest.raises(DatabaseUnavailable):
                await client.workers()
        with Client(lost) as blocking, pytest.raises(DatabaseUnavailable):
            blocking.workers()


async def test_a_database_that_falls_silent_behind_a_pooler_is_unavailable(
    through: Config, db: psycopg.Connection
) -> None:
    hasty = through.with_changes(statement_timeout_seconds=3.0)
    async with AsyncClient(hasty) as client:
        await client.workers()
        # Everybody waits behind this lock, as behind a server that doesn't answer.
        with db.transaction():
            db.execute("LOCK TABLE pauses")
            with pytest.raises(DatabaseUnavailable, match="or doesn't answer"):
                await client.pauses()
        assert await client.pauses() == []


def test_the_demo_reaches_its_database_as_the_environment_says(
    through: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKLIB_PREPARED_STATEMENTS", "false")
    monkeypatch.setenv("TASKLIB_LISTEN", "false")
    monkeypatch.setenv("TASKLIB_MAX_RETRIES", "77")  # the demo has its own idea
    with open_stage(through.database_url, DemoScreen()) as stage:
        assert stage.client.config.max_retries == Config(through.database_url).max_retries
        stage.start_worker("ada", slots=1)
        stage.await_workers("ada")

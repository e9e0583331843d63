"""Transactional tasks: the task's own writes and its completion commit together, or not at all."""

from __future__ import annotations

import asyncio
import os
import signal

import psycopg
import pytest

from tasklib import AsyncClient, Config, Worker, current_task, task
from tasklib.errors import ConfigError, InvalidTaskFunction
from tasklib.events import ResultRefused, TaskStarted
from tests.worker.watching import burst, working


@pytest.fixture
def paid(db: psycopg.Connection) -> psycopg.Connection:
    db.execute("CREATE TABLE paid (number int)")
    return db


async def test_writes_and_completion_commit_together(config: Config, paid: psycopg.Connection) -> None:
    @task(transactional=True)
    async def pay(number: int, connection: psycopg.AsyncConnection) -> int:
        await connection.execute("INSERT INTO paid VALUES (%s)", (number,))
        seen = paid.execute("SELECT count(*) FROM paid").fetchone()
        assert seen == (0,), "nobody sees the write before the task completes"
        return number

    client = AsyncClient(config)
    task_id = await client.submit_task(pay, number=7)
    await burst(config)
    assert await client.wait_for(task_id) == 7
    assert paid.execute("SELECT number, xmin::text FROM paid").fetchall() == [
        (7, paid.execute("SELECT xmin::text FROM tasks").fetchone()[0])
    ], "one transaction wrote both rows"


async def test_sync_function_gets_a_sync_connection(config: Config, paid: psycopg.Connection) -> None:
    @task(transactional=True)
    def pay(number: int, connection: psycopg.Connection) -> None:
        connection.execute("INSERT INTO paid VALUES (%s)", (number,))

    client = AsyncClient(config)
    task_id = await client.submit_task(pay, number=7)
    await burst(config)
    assert await client.wait_for(task_id) is None
    assert paid.execute("SELECT number FROM paid").fetchall() == [(7,)]


async def test_a_database_that_is_stricter_by_default_does_not_cost_a_task_whose_row_was_written(
    config: Config, paid: psycopg.Connection
) -> None:
    """By the heartbeat, which extends its lease, or because it reports progress."""
    paid.execute(f'ALTER DATABASE "{paid.info.dbname}" SET default_transaction_isolation = serializable'.encode())

    @task(transactional=True, max_retries=0)
    async def pay(connection: psycopg.AsyncConnection) -> None:
        await connection.execute("INSERT INTO paid VALUES (1)")
        paid.execute("UPDATE tasks SET progress = '1', locked_until = now() + interval '5 min'")

    task_id = await AsyncClient(config).submit_task(pay)
    watched = await burst(config)
    assert (await watched.ended(task_id)).state == "completed"


@pytest.mark.parametrize("touched", [True, False], ids=["row was written", "row was left alone"])
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_task_that_raises_its_isolation_is_refused_and_told_why(
    config: Config, paid: psycopg.Connection, kind: str, touched: bool
) -> None:
    def touch() -> None:
        if touched:
            paid.execute("UPDATE tasks SET progress = '1'")

    @task(name="pay", transactional=True, max_retries=5)
    async def pay(connection: psycopg.AsyncConnection) -> None:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await connection.execute("INSERT INTO paid VALUES (1)")
        touch()

    @task(name="pay_sync", transactional=True, max_retries=5)
    def pay_sync(connection: psycopg.Connection) -> None:
        connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        connection.execute("INSERT INTO paid VALUES (1)")
        touch()

    client = AsyncClient(config)
    task_id = await client.submit_task(pay if kind == "async" else pay_sync)
    watched = await burst(config)
    ended = await watched.ended(task_id)
    assert ended.state == "dead_letter"
    assert "above READ COMMITTED" in str(ended.error)
    assert paid.execute("SELECT count(*) FROM paid").fetchone() == (0,)


async def test_a_transactional_task_is_completed_when_it_ends_and_not_when_it_began(
    config: Config, paid: psycopg.Connection
) -> None:
    @task(transactional=True)
    async def pay(connection: psycopg.AsyncConnection) -> None:
        paid.execute("CREATE TABLE marks AS SELECT clock_timestamp() AS at")

    await AsyncClient(config).submit_task(pay)
    await burst(config)
    assert paid.execute("SELECT completed_at > at FROM tasks, marks").fetchone() == (True,)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_failed_task_leaves_no_writes(config: Config, paid: psycopg.Connection, kind: str) -> None:
    if kind == "async":

        @task(transactional=True, max_retries=0)
        async def pay(connection: psycopg.AsyncConnection) -> None:
            await connection.execute("INSERT INTO paid VALUES (1)")
            raise ValueError("declined")
    else:

        @task(transactional=True, max_retries=0)
        def pay(connection: psycopg.Connection) -> None:
            connection.execute("INSERT INTO paid VALUES (1)")
            raise ValueError("declined")

    client = AsyncClient(config)
    task_id = await client.submit_task(pay)
    await burst(config)
    row = await client.get_task(task_id)
    assert row is not None
    assert row.state == "dead_letter"
    assert "declined" in str(row.error)
    assert paid.execute("SELECT count(*) FROM paid").fetchone() == (0,)


async def test_result_that_cannot_be_stored_leaves_no_writes(config: Config, paid: psycopg.Connection) -> None:
    @task(transactional=True, max_retries=0)
    async def pay(connection: psycopg.AsyncConnection) -> object:
        await connection.execute("INSERT INTO paid VALUES (1)")
        return object()

    await AsyncClient(config).submit_task(pay)
    await burst(config)
    assert paid.execute("SELECT count(*) FROM paid").fetchone() == (0,)
    assert paid.execute("SELECT state FROM tasks").fetchone() == ("dead_letter",)


async def test_task_whose_lease_was_taken_leaves_no_writes(config: Config, paid: psycopg.Connection) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @task(transactional=True)
    async def pay(connection: psycopg.AsyncConnection) -> None:
        await connection.execute("INSERT INTO paid VALUES (1)")
        started.set()
        await go_on.wait()

    await AsyncClient(config).submit_task(pay)
    async with working(config) as watched:
        await started.wait()
        paid.execute("UPDATE tasks SET lease_token = lease_token + 1, worker_id = 'thief'")
        go_on.set()
        await watched.until(ResultRefused)
    assert paid.execute("SELECT count(*) FROM paid").fetchone() == (0,)
    assert paid.execute("SELECT state, worker_id FROM tasks").fetchone() == ("running", "thief")


async def test_timed_out_task_leaves_no_writes(config: Config, paid: psycopg.Connection) -> None:
    @task(transactional=True, timeout_seconds=1)
    async def pay(connection: psycopg.AsyncConnection) -> None:
        await connection.execute("INSERT INTO paid VALUES (1)")
        await asyncio.Event().wait()

    await AsyncClient(config).submit_task(pay)
    await burst(config)
    assert paid.execute("SELECT count(*) FROM paid").fetchone() == (0,)
    assert paid.execute("SELECT state FROM tasks").fetchone() == ("failed",)


async def test_connection_lost_in_the_task_uses_no_retry_and_the_next_attempt_commits_once(
    config: Config, paid: psycopg.Connection
) -> None:
    @task(transactional=True, max_retries=0)
    async def pay(connection: psycopg.AsyncConnection) -> int:
        await connection.execute("INSERT INTO paid VALUES (1)")
        if current_task().token == 1:
            row = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
            paid.execute("SELECT pg_terminate_backend(%s)", row)
        return current_task().token

    client = AsyncClient(config)
    task_id = await client.submit_task(pay)
    async with working(config.with_changes(base_retry_delay_seconds=0)) as watched:
        await watched.until(TaskStarted)
        await watched.ended(task_id, "completed")
    assert await client.wait_for(task_id) == 2
    assert paid.execute("SELECT count(*) FROM paid").fetchone() == (1,)


async def test_many_transactional_tasks_at_once_have_a_connection_each(
    config: Config, paid: psycopg.Connection
) -> None:
    together = asyncio.Barrier(12)

    @task(transactional=True)
    async def pay(number: int, connection: psycopg.AsyncConnection) -> None:
        await connection.execute("INSERT INTO paid VALUES (%s)", (number,))
        await together.wait()

    await AsyncClient(config).submit_many(pay, [{"number": n} for n in range(12)])
    await burst(config, concurrency=12)
    assert paid.execute("SELECT count(*) FROM paid").fetchone() == (12,)


async def test_a_statement_of_a_task_may_take_longer_than_those_of_the_worker(config: Config) -> None:
    @task(name="transactional_patience", transactional=True)
    def patient(connection: psycopg.Connection) -> None:
        connection.execute("SELECT pg_sleep(1.2)")

    async with AsyncClient(config) as client:
        [task_id] = await client.submit_many([patient.bind()])
        await Worker(config.with_changes(statement_timeout_seconds=1.0), burst=True).run()
        assert (found := await client.get_task(task_id))
        assert found.state == "completed", found.error


@pytest.mark.direct(reason="it freezes the server's process, which a pooler stands before")
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_a_completion_that_is_never_answered_fails_the_attempt(config: Config, is_async: bool) -> None:
    frozen: list[int] = []

    def freeze(connection: psycopg.Connection | psycopg.AsyncConnection) -> None:
        frozen.append(connection.info.backend_pid)
        if not os.path.exists(f"/proc/{frozen[0]}"):
            pytest.skip("the server is not on this machine")
        os.kill(frozen[0], signal.SIGSTOP)

    if is_async:

        @task(name="transactional_silence", transactional=True, max_retries=1)
        async def silent(connection: psycopg.AsyncConnection) -> None:
            freeze(connection)

    else:

        @task(name="transactional_silence", transactional=True, max_retries=1)
        def silent(connection: psycopg.Connection) -> None:
            freeze(connection)

    async with AsyncClient(config) as client:
        [task_id] = await client.submit_many("transactional_silence", [{}])
    async with working(config.with_changes(statement_timeout_seconds=2.0)) as watched:
        try:
            await watched.ended(task_id, "failed")
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_configuration_makes_every_function_with_a_connection_transactional(
    config: Config, paid: psycopg.Connection, kind: str
) -> None:
    if kind == "async":

        @task(max_retries=0)
        async def pay(connection: psycopg.AsyncConnection, number: int) -> None:
            await connection.execute("INSERT INTO paid VALUES (%s)", (number,))
            if number > 1:
                raise ValueError("declined")
    else:

        @task(max_retries=0)
        def pay(connection: psycopg.Connection, number: int) -> None:
            connection.execute("INSERT INTO paid VALUES (%s)", (number,))
            if number > 1:
                raise ValueError("declined")

    @task
    async def plain(number: int) -> int:
        return number

    transactional = config.with_changes(transactional=True)
    client = AsyncClient(transactional)
    ids = await client.submit_many(pay, [{"number": 1}, {"number": 2}])
    other = await client.submit_task(plain, number=3)
    await burst(transactional)
    assert [(await client.get_task(i)).state for i in ids] == ["completed", "dead_letter"]  # type: ignore[union-attr]
    assert paid.execute("SELECT number FROM paid").fetchall() == [(1,)]
    assert await client.wait_for(other) == 3


async def test_without_it_a_worker_says_what_a_function_with_a_connection_needs(config: Config) -> None:
    @task
    async def pay(connection: psycopg.AsyncConnection) -> None: ...

    with pytest.raises(ConfigError, match=r"pay takes a connection\. Write @task\(transactional=True\)"):
        await burst(config)


def test_a_connection_of_another_type_is_an_argument_like_any(config: Config) -> None:
    @task
    def call(connection: str) -> None: ...

    assert call.arguments.to_json({"connection": "by phone"}) == '{"connection":"by phone"}'
    with pytest.raises(InvalidTaskFunction, match="a parameter of pay has a type that can't travel as JSON"):

        @task(transactional=False)
        def pay(connection: psycopg.Connection) -> None: ...

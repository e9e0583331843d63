"""TaskLib in a schema of its own, whatever its name: every backend, the worker, the wake-up, and nothing outside it."""

from __future__ import annotations

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, Worker, current_task, task
from tasklib.errors import SchemaError
from tasklib.events import TaskStarted
from tasklib.migrations import migrate
from tests.worker.watching import working


@pytest.mark.parametrize("schema", ["jobs", 'Odd "schema" %s name', "tâches"])
async def test_everything_works_in_any_schema(empty_database_url: str, schema: str) -> None:
    config = Config(empty_database_url, schema=schema, base_retry_delay_seconds=0)
    migrate(config)

    @task
    async def work(n: int) -> int:
        if current_task().attempt == 1:
            raise ValueError
        return n

    @task(transactional=True)
    async def pay(connection: psycopg.AsyncConnection) -> None: ...

    client = AsyncClient(config)
    async with working(config, poll_interval_seconds=1000.0) as watched:
        await watched.worker._backend.notifier.listening.wait()
        one = await client.submit_task(work, n=1)
        assert await client.wait_for(one, timeout=120) == 1
        await client.submit_many(work, [{"n": n} for n in range(150)])
        keyed = await client.submit_task(pay, idempotency_key="once")
        assert await client.submit_task(pay, idempotency_key="once") == keyed
        assert await client.wait_for(keyed, timeout=120) is None
        await client.replay_task(keyed)
        assert await client.wait_for(keyed, timeout=120) is None
        with Client(config) as sync_client, psycopg.connect(empty_database_url) as connection:
            inside = sync_client.submit_task(work, n=2, connection=connection)
        assert await client.wait_for(inside, timeout=120) == 2
    with psycopg.connect(empty_database_url) as db:
        outside = db.execute(
            "SELECT nspname, relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE nspname <> %s AND nspname !~ '^pg_' AND nspname <> 'information_schema'",
            (schema,),
        ).fetchall()
    assert outside == []


async def test_two_schemas_in_one_database_keep_to_themselves(empty_database_url: str) -> None:
    @task
    async def work() -> str:
        return current_task().worker_id

    one, two = (Config(empty_database_url, schema=s, worker_id=s) for s in ("one", "two"))
    migrate(one)
    migrate(two)
    async with working(one) as first, working(two) as second:
        a = await AsyncClient(one).submit_task(work)
        b = await AsyncClient(two).submit_task(work)
        await first.ended(a, "completed")
        await second.ended(b, "completed")
        assert len(first.all(TaskStarted)) == len(second.all(TaskStarted)) == 1


@pytest.mark.direct(reason="a pooler's open connections keep the search_path they began with")
async def test_schema_on_the_search_path_is_found_without_naming_it(empty_database_url: str) -> None:
    migrate(Config(empty_database_url, schema="jobs"))
    name = psycopg.conninfo.conninfo_to_dict(empty_database_url)["dbname"]
    with psycopg.connect(empty_database_url, autocommit=True) as db:
        db.execute(f'ALTER DATABASE "{name}" SET search_path = jobs'.encode())

    @task
    async def work() -> int:
        return 1

    config = Config(empty_database_url)
    async with working(config, poll_interval_seconds=1000.0) as watched:
        await watched.worker._backend.notifier.listening.wait()
        task_id = await AsyncClient(config).submit_task(work)
        await watched.ended(task_id, "completed")


async def test_worker_refuses_a_database_without_our_tables(empty_database_url: str) -> None:
    with pytest.raises(SchemaError, match=r"tables are not in this database.*tasklib migrate"):
        await Worker(empty_database_url).run()


async def test_worker_refuses_a_tasks_table_of_another_program(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as db:
        db.execute("CREATE TABLE tasks (id int)")
    with pytest.raises(SchemaError, match="tasklib migrate"):
        await Worker(empty_database_url).run()


async def test_worker_refuses_a_newer_schema(database_url: str, db: psycopg.Connection) -> None:
    db.execute("UPDATE tasklib_version SET version_num = '9999'")
    with pytest.raises(SchemaError, match=r"newer than this TaskLib knows.*Upgrade tasklib-pg"):
        await Worker(database_url).run()


async def test_worker_refuses_the_schema_of_another_shard(empty_database_url: str) -> None:
    migrate(Config(empty_database_url, shard=3))
    with pytest.raises(SchemaError, match=r"is shard 3, and this program takes it for shard 4.*TASKLIB_SHARD=3"):
        await Worker(Config(empty_database_url, shard=4)).run()

"""A row that another transaction has locked holds up nothing but itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tasklib import AsyncClient, Config, task
from tasklib.backends.postgres.heartbeat import PostgresHeartbeatConnection
from tasklib.db.database import Database
from tasklib.db.query import Query
from tasklib.errors import DatabaseUnavailable
from tasklib.store import settle
from tasklib.store.settle import Completion, Failure, Lease
from tests.eventually import soon
from tests.worker.watching import working


@contextmanager
def locked(database_url: str, task_id: object) -> Iterator[psycopg.Connection]:
    """A transaction that holds a task's row."""
    with psycopg.connect(database_url) as other:
        assert other.execute("SELECT id FROM tasks WHERE id = %s FOR UPDATE", (task_id,)).fetchone()
        yield other


def running(db: psycopg.Connection, count: int = 2) -> list[Lease]:
    rows = db.execute(
        """INSERT INTO tasks (name, state, worker_id, locked_until, lease_token)
           SELECT 'work', 'running', 'w', now() + interval '1 min', 1 FROM generate_series(1, %s) RETURNING id::text""",
        (count,),
    ).fetchall()
    return sorted(Lease(row[0], 1) for row in rows)


WRITES: dict[str, Any] = {
    "complete": lambda leases: settle.complete([Completion(lease, "1") for lease in leases], "w", contended=True),
    "fail": lambda leases: settle.fail([Failure(lease, "e", "error", 1.0) for lease in leases], "w", 3),
    "release": lambda leases: settle.release(leases, "w"),
    "stop": lambda leases: settle.stop([(lease, "e") for lease in leases], "w"),
    "extend": lambda leases: settle.extend(leases, "w", 600.0),
    "progress": lambda leases: settle.progress([(lease, "1") for lease in leases], "w"),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_batch_leaves_out_a_locked_row_and_writes_the_others(
    config: Config, db: psycopg.Connection, write: str
) -> None:
    leases = running(db)
    database = Database(config)
    query: Query[Any] = WRITES[write](leases)
    with locked(config.database_url, leases[0].id):
        assert set(database.run(query)) == {leases[1].id}
        assert database.run(settle.still_held([leases[0]], "w")) == {leases[0].id}
    assert set(database.run(WRITES[write](leases))) >= {leases[0].id}
    database.close()


async def test_results_are_stored_and_slots_freed_while_one_row_is_locked(
    config: Config, db: psycopg.Connection
) -> None:
    release = asyncio.Event()

    @task
    async def held() -> str:
        await release.wait()
        return "late"

    @task
    async def work() -> None: ...

    async with AsyncClient(config) as client, working(config, concurrency=2) as watched:
        first = await client.submit_task(held)
        await soon(lambda: watched.worker.taken == 1, "it runs")
        with locked(config.database_url, first):
            release.set()
            ids = await client.submit_many(work, [{}] * 30)
            for task_id in ids:
                await watched.ended(task_id, "completed")
            assert [e.id for e in watched.events if getattr(e, "id", None) == str(first)][1:] == []
        ended = await watched.ended(first)
    assert ended.state == "completed"
    assert db.execute("SELECT count(*) FROM tasks WHERE state = 'completed'").fetchone() == (31,)


@pytest.mark.parametrize("fails", [True, False], ids=["failed", "released"])
async def test_other_outcomes_wait_for_a_locked_row_too(config: Config, db: psycopg.Connection, fails: bool) -> None:
    go_on = asyncio.Event()

    @task(max_retries=0)
    async def held() -> None:
        await go_on.wait()
        raise ValueError("late")

    async with AsyncClient(config) as client, working(config) as watched:
        task_id = await client.submit_task(held)
        await soon(lambda: watched.worker.taken == 1, "it runs")
        with locked(config.database_url, task_id):
            if fails:
                go_on.set()
            else:
                watched.stop_attempts()
            await soon(lambda: len(watched.worker._settler._locked) == 1, "the row is found locked")
            assert not watched.worker._settler.is_idle
        assert (await watched.ended(task_id)).state == ("dead_letter" if fails else "pending")
        watched.worker.stop()


def test_the_heart_keeps_the_other_leases_and_takes_none_for_lost(config: Config, db: psycopg.Connection) -> None:
    leases = running(db, 3)
    db.execute("UPDATE tasks SET locked_until = now() - interval '1 s' WHERE id = %s", (leases[2].id,))
    heartbeats = PostgresHeartbeatConnection(config)
    with locked(config.database_url, leases[0].id):
        kept, held = heartbeats.extend("w", leases, 600.0)
    heartbeats.drop()
    assert (kept, held) == ({leases[1].id}, {leases[0].id})


def test_a_lease_is_extended_from_the_moment_it_is_written(config: Config, db: psycopg.Connection) -> None:
    """Not from the moment when the statement, or the transaction, began."""
    [lease] = running(db, 1)
    with psycopg.connect(config.database_url) as other:
        began = other.execute("SELECT now()").fetchone()
        other.execute("SELECT pg_sleep(0.05)")
        query = settle.extend([lease], "w", 600.0)
        from tasklib.db.database import execute

        assert execute(other, query, None) == {lease.id}
        later = other.execute("SELECT locked_until - interval '600 s' > now() FROM tasks").fetchone()
    assert (began is not None, later) == (True, (True,))


def test_a_heartbeat_gives_up_on_a_locked_row_and_beats_again(config: Config, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO workers (id) VALUES ('w')")
    heartbeats = PostgresHeartbeatConnection(config)
    with psycopg.connect(config.database_url) as other:
        other.execute("SELECT id FROM workers WHERE id = 'w' FOR UPDATE")
        with pytest.raises(DatabaseUnavailable, match="lock timeout"):
            heartbeats.beat("w", load=0, draining=False, names=None)
    assert heartbeats.beat("w", load=0, draining=False, names=None) is False
    heartbeats.drop()


async def test_a_repeated_idempotency_key_in_an_open_transaction_locks_nothing(
    config: Config, db: psycopg.Connection
) -> None:
    @task
    async def once(n: int) -> None: ...

    client = AsyncClient(config)
    first = await client.submit_task(once, n=1, idempotency_key="k")
    async with await psycopg.AsyncConnection.connect(config.database_url) as other:
        again = await client.submit_task(once, n=2, idempotency_key="k", connection=other)
        many = await client.submit_many(
            [once.options(idempotency_key=key).bind(n=3) for key in ("k", "l")], connection=other
        )
        async with working(config) as watched:
            await watched.ended(first, "completed")
        await other.rollback()
    assert again == first == many[0] != many[1]
    assert isinstance(many[1], UUID)

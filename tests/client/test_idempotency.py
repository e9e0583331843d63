"""One task per name and idempotency key within the window: by every connection, in batches, under a race."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import cycle, islice
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, task
from tests.client.conftest import Either
from tests.client.connections.conftest import done
from tests.client.connections.opening import ASYNC_CONNECTIONS, CONNECTIONS, Address

PLAIN_SQL = """
INSERT INTO tasks (name, kwargs, idempotency_key) VALUES ('greet', '{"name": "sql"}', %s) ON CONFLICT DO NOTHING
"""
RIVALS = 32


@pytest.fixture(autouse=True)
def _django_next_to_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")


@pytest.fixture
def greet() -> Any:
    @task
    def greet(name: str) -> None: ...

    return greet


# ---- ways in: each takes a key and returns the id of the task that has it ----

Way = Callable[[str], UUID]


def ways(config: Config, client: Client, address: Address, greet: Any) -> dict[str, Way]:
    """Every way of submitting with a key. Each may be called in a thread of its own."""

    def by_sql(key: str) -> UUID:
        with psycopg.connect(config.database_url) as connection:
            connection.execute(PLAIN_SQL, [key])
            found: UUID = connection.execute(
                "SELECT id FROM tasks WHERE name = 'greet' AND idempotency_key = %s", [key]
            ).fetchall()[0][0]
        return found

    def by_async_client(key: str) -> UUID:
        async def submit() -> UUID:
            async with AsyncClient(config) as async_client:
                return await async_client.submit_task(greet, name="async", idempotency_key=key)

        return asyncio.run(submit())

    def by_connection(name: str) -> Way:
        async def submit(key: str) -> UUID:
            async with CONNECTIONS[name](address) as opened:
                options = {"idempotency_key": key, "connection": opened.connection}
                if name in ASYNC_CONNECTIONS:
                    async with AsyncClient(config) as async_client:
                        found = await async_client.submit_task(greet, name=name, **options)
                else:
                    found = client.submit_task(greet, name=name, **options)
                await done(opened.commit())
                return found

        return lambda key: asyncio.run(submit(key))

    return {
        "client": lambda key: client.submit_task(greet, name="sync", idempotency_key=key),
        "async client": by_async_client,
        "submit_many": lambda key: client.submit_many(
            [greet.bind(name="beside"), greet.options(idempotency_key=key).bind(name="many")]
        )[1],
        "plain SQL": by_sql,
        **{name: by_connection(name) for name in CONNECTIONS},
    }


WAYS = ["client", "async client", "submit_many", "plain SQL", *CONNECTIONS]


@pytest.fixture
def by(config: Config, client: Client, address: Address, greet: Any) -> dict[str, Way]:
    return ways(config, client, address, greet)


def keyed(db: psycopg.Connection, key: str) -> list[UUID]:
    """The tasks that have the key now."""
    return [row[0] for row in db.execute("SELECT id FROM tasks WHERE idempotency_key = %s", [key])]


def expire(db: psycopg.Connection) -> None:
    """The windows end this very moment: the next transaction is at or behind their end."""
    db.execute("UPDATE tasks SET idempotency_expires_at = now() WHERE idempotency_key IS NOT NULL")


# ---- one by one ----


def test_these_are_all_the_ways(by: dict[str, Way]) -> None:
    assert list(by) == WAYS


@pytest.mark.parametrize("way", WAYS)
def test_second_submission_returns_the_first_task_whatever_way_either_came(
    way: str, by: dict[str, Way], db: psycopg.Connection
) -> None:
    first = by[way]("k")
    assert by["client"]("k") == first
    assert by["plain SQL"]("k") == first
    earlier = by["client"]("other")
    assert by[way]("other") == earlier
    assert keyed(db, "k") == [first]


@pytest.mark.parametrize("way", WAYS)
def test_key_is_free_again_the_moment_its_window_ends_without_any_sweep(
    way: str, by: dict[str, Way], db: psycopg.Connection
) -> None:
    first = by["client"]("k")
    db.execute("UPDATE tasks SET idempotency_expires_at = now() + interval '1 hour'")
    assert by[way]("k") == first, "an hour before the end"
    expire(db)
    second = by[way]("k")
    assert second != first
    assert by["client"]("k") == second
    assert keyed(db, "k") == [second]
    left = db.execute("SELECT state, idempotency_key FROM tasks WHERE id = %s", [first]).fetchone()
    assert left == ("pending", None), "the first task itself goes on"


async def test_window_is_that_of_the_configuration_of_the_first_submission(
    config: Config, greet: Any, db: psycopg.Connection
) -> None:
    with Client(config.with_changes(idempotency_window_seconds=5)) as brief:
        first = brief.submit_task(greet, name="a", idempotency_key="k")
    with Client(config.with_changes(idempotency_window_seconds=500)) as lasting:
        assert lasting.submit_task(greet, name="b", idempotency_key="k") == first
        lasting.submit_task(greet, name="b", idempotency_key="l")
    db.execute(PLAIN_SQL, ["m"])
    windows = db.execute("SELECT idempotency_key, idempotency_expires_at - created_at FROM tasks ORDER BY 1").fetchall()
    assert windows == [("k", timedelta(seconds=5)), ("l", timedelta(seconds=500)), ("m", timedelta(hours=24))]


async def test_finished_task_keeps_its_key_for_the_window(either: Either, greet: Any, db: psycopg.Connection) -> None:
    first = await either.submit_task(greet, name="a", idempotency_key="k")
    db.execute("UPDATE tasks SET state = 'completed', completed_at = now()")
    assert await either.submit_task(greet, name="b", idempotency_key="k") == first
    assert db.execute("SELECT state FROM tasks").fetchall() == [("completed",)]


# ---- races ----


@pytest.mark.parametrize("before", ["a fresh key", "an expired key"])
def test_rivals_by_all_ways_to_submit_at_once_get_one_task(
    before: str, by: dict[str, Way], db: psycopg.Connection
) -> None:
    by["Django"]("warm up")  # its settings are made once, and not by two threads at the same time
    old = {by["client"]("k")} if before == "an expired key" else set()
    expire(db)
    gate = threading.Barrier(RIVALS)

    def submit(way: str) -> UUID:
        gate.wait(120)
        return by[way]("k")

    with ThreadPoolExecutor(RIVALS) as threads:
        found = set(threads.map(submit, islice(cycle(WAYS), RIVALS)))
    assert len(found) == 1
    assert keyed(db, "k") == list(found)
    assert not found & old
    named = db.execute("SELECT count(*) FROM tasks WHERE name = 'greet' AND kwargs->>'name' <> 'beside'").fetchone()
    assert named == (2 + len(old),), "the warm-up, perhaps the expired one, and one winner"


def test_one_that_waits_for_a_rival_gets_its_task_after_commit_and_its_own_after_rollback(
    config: Config, client: Client, greet: Any, database_url: str, db: psycopg.Connection
) -> None:
    for ending in ("commit", "rollback"):
        key = f"k-{ending}"
        with psycopg.connect(database_url) as rival, ThreadPoolExecutor(1) as thread:
            theirs = client.submit_task(greet, name="rival", idempotency_key=key, connection=rival)
            mine = thread.submit(client.submit_task, greet, name="me", idempotency_key=key)
            while not db.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchall()[0][0]:
                assert not mine.done(), "it has to wait until the rival has decided"
            getattr(rival, ending)()
            assert (mine.result(120) == theirs) == (ending == "commit")
        assert keyed(db, key) == [mine.result()]


# ---- batches ----


async def test_batch_with_repeats_of_itself_and_of_stored_tasks_has_one_task_per_key(
    either: Either, greet: Any, db: psycopg.Connection
) -> None:
    stored = await either.submit_task(greet, name="stored", idempotency_key="s")
    db.execute("INSERT INTO tasks (name, idempotency_key) VALUES ('greet', 'gone')")
    db.execute("UPDATE tasks SET idempotency_expires_at = now() WHERE idempotency_key = 'gone'")
    keys = ["s", "a", None, "a", "gone", "s", "gone", None]
    ids = await either.submit_many([greet.options(idempotency_key=k).bind(name=str(n)) for n, k in enumerate(keys)])
    assert ids[0] == ids[5] == stored
    assert ids[1] == ids[3]
    assert ids[4] == ids[6]
    assert len(set(ids)) == 5
    names = dict(db.execute("SELECT id, kwargs->>'name' FROM tasks").fetchall())
    assert [names[i] for i in ids] == ["stored", "1", "2", "1", "4", "stored", "4", "7"]


@pytest.mark.parametrize("before", ["fresh keys", "stored keys", "expired keys"])
def test_two_batches_in_opposite_order_of_keys_dont_deadlock(
    before: str, config: Config, client: Client, greet: Any, database_url: str, db: psycopg.Connection
) -> None:
    """On connections of the caller's own, where nothing is tried again: a deadlock would be seen."""
    for round_ in range(10):
        keys = [f"{round_}-{n}" for n in range(100)]
        batch = [greet.options(idempotency_key=k).bind(name=k) for k in keys]
        if before != "fresh keys":
            client.submit_many(batch)
        if before == "expired keys":
            expire(db)
        gate = threading.Barrier(2)

        def submit(items: list[Any], gate: threading.Barrier = gate) -> list[UUID]:
            with psycopg.connect(database_url) as connection:
                gate.wait(120)
                return client.submit_many(items, connection=connection)

        with ThreadPoolExecutor(2) as threads:
            forwards, backwards = threads.map(submit, [batch, batch[::-1]])
        assert forwards == backwards[::-1]
        assert len(set(forwards)) == 100

"""Connections that end under a submission: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tasklib import AsyncClient, Client, Config, group
from tasklib.client.submissions import COPY_FROM
from tasklib.errors import DatabaseUnavailable
from tests.client.conftest import Either
from tests.client.proxy import Proxy, proxy
from tests.client.submit.stored import count, rows


def end_the_clients_sessions(db: psycopg.Connection) -> int:
    ended = db.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'tasklib client'"
    ).fetchall()
    assert all(gone for (gone,) in ended)
    return len(ended)


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
async def test_a_session_ended_by_the_server_between_calls_is_not_noticed(either: Either, greet: Any, db: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: either.submit_task(greet, name="a"),
        lambda: either.submit_task(greet, name="a", idempotency_key="k"),
        lambda: either.submit_many(greet, [{"name": "a"}] * COPY_FROM),
        lambda: either.list_tasks(limit=1),
        lambda: either.submit_many([greet.bind(name="a"), greet.options(idempotency_key="l").bind(name="a")]),
    ]
    await calls[0]()
    for call in calls:
        assert end_the_clients_sessions(db) == 1
        assert await call()
    assert count(db) == 2 + 1 + COPY_FROM + 2


@pytest.fixture
def lossy(address: dict[str, str], config: Config) -> Iterator[tuple[Proxy, Config]]:
    """A way to the database that can lose answers."""
    with proxy(address["host"], int(address["port"])) as lossy:
        way: dict[str, Any] = {
            **address,
            "host": "127.0.0.1",
            "port": lossy.port,
            "sslmode": "disable",
            "gssencmode": "disable",
        }
        yield lossy, config.with_changes(database_url=make_conninfo("", **way))


async def _submit_flow(client: Either, greet: Any) -> list[Any]:
    run = await client.submit_flow(group(greet.s(name=name) for name in "abc"))
    return [id_ for ids in run.tasks.values() for id_ in ids]


@pytest.mark.parametrize("colour", [Client, AsyncClient], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("marker", "expected", "submit"),
    [
        (b"INSERT INTO", 1, lambda c, fn: c.submit_task(fn, name="a")),
        (b"INSERT INTO", 1, lambda c, fn: c.submit_task(fn, name="a", idempotency_key="k")),
        (b"INSERT INTO", 50, lambda c, fn: c.submit_many(fn, [{"name": "a"}] * 50)),
        (b"COMMIT", COPY_FROM, lambda c, fn: c.submit_many(fn, [{"name": "a"}] * COPY_FROM)),
        (b"INSERT INTO", 3, lambda c, fn: _submit_flow(c, fn)),
        (
            b"COMMIT",
            COPY_FROM + 2,
            lambda c, fn: c.submit_many(
                [
                    *[fn.bind(name="a")] * COPY_FROM,
                    fn.options(delay_seconds=9).bind(name="b"),
                    fn.options(idempotency_key="k").bind(name="c"),
                ]
            ),
        ),
    ],
    ids=["one", "keyed", "insert", "copy", "flow", "mixed"],
)
async def test_a_submission_whose_answer_was_lost_after_the_commit_is_not_doubled(
    colour: Any, marker: bytes, expected: int, submit: Any, lossy: tuple[Proxy, Config], greet: Any, db: Any
) -> None:
    way, config = lossy
    client = Either(colour(config))
    await client.list_tasks()
    way.lose_answer_to(marker)
    ids = await submit(client, greet)
    assert way.lost == 1
    assert count(db) == expected
    assert {r["id"] for r in rows(db)} == (set(ids) if isinstance(ids, list) else {ids})
    client.client.close()


@pytest.mark.direct(reason="it changes a setting of its session, which a pooler gives to others")
async def test_a_session_of_a_demoted_primary_is_dropped(either: Either, greet: Any, db: Any) -> None:
    await either.submit_task(greet, name="a")
    for connection in either.client.database._idle:
        answer = connection.execute("SET default_transaction_read_only = on")
        if asyncio.iscoroutine(answer):
            await answer
    await either.submit_task(greet, name="b")
    assert count(db) == 2


async def test_a_server_that_takes_no_writes_is_named_as_such(
    either: Either, greet: Any, empty_database_url: str, config: Config
) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    client = Either(type(either.client)(config.with_changes(database_url=empty_database_url)))
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        await client.submit_task(greet, name="a")

"""Which connection goes with which call, and what is none at all."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

import tasklib
from tasklib import AsyncClient, Client, SyncTaskId, TaskId
from tasklib.errors import InvalidOption
from tests.client.connections.conftest import done, ids
from tests.client.connections.opening import ASYNC_CONNECTIONS, CONNECTIONS, Address, django_connection, engine


@pytest.mark.parametrize("name", sorted(ASYNC_CONNECTIONS))
async def test_an_asynchronous_connection_is_refused_by_the_synchronous_call(
    name: str, address: Address, client: Client, greet: Any
) -> None:
    async with CONNECTIONS[name](address) as opened:
        with pytest.raises(InvalidOption, match=r"asynchronous connection .*use the awaitable call with it"):
            client.submit_task(greet, name="a", connection=opened.connection)


@pytest.mark.parametrize("name", sorted(CONNECTIONS.keys() - ASYNC_CONNECTIONS))
async def test_a_synchronous_connection_serves_the_awaitable_call_too(
    name: str, address: Address, async_client: AsyncClient, greet: Any, db: Any
) -> None:
    async with CONNECTIONS[name](address) as opened:
        task_id = await async_client.submit_task(greet, name="a", connection=opened.connection)
        await done(opened.commit())
    assert ids(db) == [task_id]


@pytest.mark.parametrize("name", sorted(CONNECTIONS))
async def test_a_task_function_on_a_connection_is_awaited_exactly_if_the_connection_is_asynchronous(
    name: str, address: Address, database_url: str, greet: Any, db: Any
) -> None:
    tasklib.init(database_url)
    for submitter in (greet, greet.options(queue="mail")):
        async with CONNECTIONS[name](address) as opened:
            submitted = submitter.on(opened.connection).submit(name="a")
            assert isinstance(submitted, Coroutine if name in ASYNC_CONNECTIONS else SyncTaskId)
            task_id = await done(submitted)
            await done(opened.rollback() if submitter is greet else opened.commit())
    assert ids(db) == [task_id]
    assert (await task_id.get() if isinstance(task_id, TaskId) else task_id.get()).queue == "mail"
    tasklib.close()


@pytest.mark.parametrize("wrong", ["postgresql://h/d", object(), 5, []], ids=["url", "object", "number", "list"])
async def test_what_is_no_connection_is_refused_with_the_list_of_those_that_are(
    wrong: Any, client: Client, async_client: AsyncClient, greet: Any, db: Any
) -> None:
    kind = type(wrong).__qualname__
    expected = rf"connection= can't use a builtins\.{kind}\. It takes: psycopg\.Connection, .*Django connection"
    with pytest.raises(InvalidOption, match=expected):
        client.submit_task(greet, name="a", connection=wrong)
    with pytest.raises(InvalidOption, match=expected):
        await async_client.submit_task(greet, name="a", connection=wrong)
    with pytest.raises(InvalidOption, match=expected):
        greet.on(wrong)
    assert ids(db) == []


def test_an_engine_is_not_a_connection(address: Address, client: Client, greet: Any) -> None:
    with pytest.raises(InvalidOption, match=r"connection= can't use a sqlalchemy\.engine\.base\.Engine"):
        client.submit_task(greet, name="a", connection=engine(address))


def test_another_database_than_postgresql_is_refused(client: Client, greet: Any) -> None:
    with (
        Session(create_engine("sqlite://")) as session,
        pytest.raises(InvalidOption, match="a connection to sqlite; TaskLib needs PostgreSQL"),
    ):
        client.submit_task(greet, name="a", connection=session)
    lite = django_connection(ENGINE="django.db.backends.sqlite3", NAME=":memory:")
    with pytest.raises(InvalidOption, match="a connection to sqlite; TaskLib needs PostgreSQL"):
        client.submit_task(greet, name="a", connection=lite)


def test_a_mixed_batch_is_all_or_none_even_in_autocommit_mode(client: Client, greet: Any, db: Any) -> None:
    # The keyed task meets a trigger that refuses it: the plain ones must not stay behind.
    db.execute("ALTER TABLE tasks ADD CONSTRAINT no_such_key CHECK (idempotency_key <> 'refused')")
    batch: Sequence[Any] = [greet.bind(name="plain"), greet.options(idempotency_key="refused").bind(name="keyed")]
    try:
        with pytest.raises(psycopg.errors.CheckViolation, match="no_such_key"):
            client.submit_many(batch, connection=db)
        assert ids(db) == []
    finally:
        db.execute("ALTER TABLE tasks DROP CONSTRAINT no_such_key")

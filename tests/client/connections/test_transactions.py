"""Every kind of connection to submit by gives the same row, wakes a worker once, and keeps to its transaction."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel.ext.asyncio.session import AsyncSession as SQLModelAsyncSession

from tasklib import AsyncClient, Client, Config
from tasklib.errors import SchemaError
from tasklib.migrations import migrate
from tests.client.connections.conftest import Caller, done, heard, ids, row_without_id_and_times
from tests.client.connections.opening import ODD_SCHEMA

EVERYTHING: dict[str, Any] = {
    "delay_seconds": 90,
    "timeout_seconds": 45,
    "priority": "high",
    "tags": {"colon": "a:b", "percent": "100% %s %(x)s", "quote": 'it\'s "so"', "unicode": "ü€😀", "backslash": r"\n"},
    "queue": "mail:fast 100%",
    "required_capabilities": ["b:b", "a%s"],
    "trace_context": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
}


async def test_commit_makes_the_task_visible_and_not_before(enter: Any, caller: Caller, greet: Any, db: Any) -> None:
    async with enter() as opened:
        task_id = await caller.submit_task(greet, name="a", connection=opened.connection)
        assert ids(db) == []
        await done(opened.commit())
    assert ids(db) == [task_id]


async def test_rollback_leaves_no_task(enter: Any, caller: Caller, greet: Any, db: Any) -> None:
    async with enter() as opened:
        await caller.submit_task(greet, name="a", connection=opened.connection)
        await caller.submit_many(greet, [{"name": "b"}, {"name": "c"}], connection=opened.connection)
        await done(opened.rollback())
    assert ids(db) == []


async def test_one_wake_up_for_all_submissions_of_a_transaction_and_none_before_its_commit(
    enter: Any, caller: Caller, greet: Any, db: Any, listener: Any
) -> None:
    async with enter() as opened:
        for name in ("a", "b", "c"):
            await caller.submit_task(greet, name=name, connection=opened.connection)
        await caller.submit_many(greet, [{"name": "d"}, {"name": "e"}], connection=opened.connection)
        assert heard(listener, db) == []
        await done(opened.commit())
    assert heard(listener, db) == [""]


async def test_an_idempotency_key_gives_back_the_first_task(enter: Any, caller: Caller, greet: Any, db: Any) -> None:
    async with enter() as opened:
        first = await caller.submit_task(greet, name="a", idempotency_key="k:1 100%", connection=opened.connection)
        again = await caller.submit_task(greet, name="b", idempotency_key="k:1 100%", connection=opened.connection)
        await done(opened.commit())
    async with enter() as opened:
        later = await caller.submit_task(greet, name="c", idempotency_key="k:1 100%", connection=opened.connection)
        await done(opened.commit())
    assert first == again == later == caller.client.submit_task(greet, name="d", idempotency_key="k:1 100%")
    assert [row[0] for row in db.execute("SELECT kwargs ->> 'name' FROM tasks")] == ["a"]


async def test_a_mixed_batch_goes_through_in_order(enter: Any, caller: Caller, greet: Any, db: Any) -> None:
    stored = caller.client.submit_task(greet, name="stored", idempotency_key="old")
    batch = [
        greet.bind(name="plain"),
        greet.options(idempotency_key="new").bind(name="keyed"),
        greet.options(delay_seconds=60).bind(name="delayed"),
        greet.options(idempotency_key="old").bind(name="known"),
        greet.options(idempotency_key="new").bind(name="repeated"),
    ]
    async with enter() as opened:
        got = await caller.submit_many(batch, connection=opened.connection)
        await done(opened.commit())
    assert got[3] == stored
    assert got[4] == got[1]
    names = dict(db.execute("SELECT id, kwargs ->> 'name' FROM tasks").fetchall())
    assert [names[i] for i in got] == ["plain", "keyed", "delayed", "stored", "keyed"]


async def test_a_large_batch_goes_through(enter: Any, caller: Caller, greet: Any, db: Any) -> None:
    async with enter() as opened:
        got = await caller.submit_many(greet, [{"name": str(i)} for i in range(250)], connection=opened.connection)
        await done(opened.commit())
    assert ids(db) == got


@pytest.mark.parametrize(
    "options", [{}, EVERYTHING, {**EVERYTHING, "idempotency_key": "k"}], ids=["bare", "all", "keyed"]
)
async def test_the_row_is_the_one_that_the_plain_client_writes(
    options: dict[str, Any], enter: Any, caller: Caller, greet: Any, db: Any
) -> None:
    arguments: dict[str, Any] = {"name": "O'Hara :x %s \\ 😀", "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}
    plain = caller.client.submit_task(greet, **arguments, **options)
    expected = row_without_id_and_times(db, plain)
    db.execute("DELETE FROM tasks")

    async with enter() as opened:
        task_id = await caller.submit_task(greet, **arguments, **options, connection=opened.connection)
        await done(opened.commit())
    assert row_without_id_and_times(db, task_id) == expected


async def test_the_callers_own_writes_share_the_transaction(enter: Any, caller: Caller, greet: Any, db: Any) -> None:
    db.execute("CREATE TABLE orders (id int)")
    try:
        async with enter() as opened:
            await execute(opened.connection, "INSERT INTO orders VALUES (1)")
            await caller.submit_task(greet, name="a", connection=opened.connection)
            await execute(opened.connection, "INSERT INTO orders VALUES (2)")
            await done(opened.commit())
        assert db.execute("SELECT count(*) FROM orders").fetchone() == (2,)
        assert len(ids(db)) == 1
    finally:
        db.execute("DROP TABLE orders")


async def execute(connection: Any, statement: str) -> None:
    if hasattr(connection, "vendor"):
        with connection.cursor() as cursor:
            cursor.execute(statement)
        return
    if isinstance(connection, SQLModelAsyncSession):
        connection = await connection.connection()
    takes_text = any(base.__module__.startswith("sqlalchemy") for base in type(connection).__mro__)
    await done(connection.execute(text(statement) if takes_text else statement))


@pytest.fixture(scope="module")
def odd_schema(shared_database_url: str) -> str:
    migrate(Config(shared_database_url, schema=ODD_SCHEMA))
    return ODD_SCHEMA


async def test_a_schema_with_an_odd_name_works(
    enter: Any, odd_schema: str, config: Config, greet: Any, db: Any, connection_kind: str
) -> None:
    there = config.with_changes(schema=odd_schema)
    with Client(there) as client:
        caller = Caller(client, AsyncClient(there), connection_kind)
        async with enter() as opened:
            task_id = await caller.submit_task(greet, name="a", connection=opened.connection)
            key = await caller.submit_task(greet, name="b", idempotency_key="k", connection=opened.connection)
            await done(opened.commit())
        assert {t.id for t in client.list_tasks()} >= {task_id, key}
        caller.async_client.close()
    assert ids(db) == []


async def test_missing_tables_are_explained(enter: Any, config: Config, greet: Any, connection_kind: str) -> None:
    nowhere = config.with_changes(schema="nowhere")
    caller = Caller(Client(nowhere), AsyncClient(nowhere), connection_kind)
    async with enter() as opened:
        with pytest.raises(SchemaError, match=r"nowhere.*Run: tasklib migrate"):
            await caller.submit_task(greet, name="a", connection=opened.connection)

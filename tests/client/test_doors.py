"""Every door into the queue gives the same row, wakes a worker once, and belongs to the caller's transaction."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import django
import psycopg
import pytest
import sqlmodel
from psycopg.rows import dict_row
from sqlalchemy import URL, Engine, NullPool, create_engine, text
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlmodel.ext.asyncio.session import AsyncSession as SQLModelAsyncSession

from tasklib import AsyncClient, Client, Config, task
from tasklib.errors import InvalidOption, SchemaError
from tasklib.migrations import migrate

Address = dict[str, Any]
ODD_SCHEMA = 'We%ird "sch:ema" {due} %s'


@dataclass
class Door:
    """A caller's connection inside a transaction, and how the caller ends it."""

    connection: Any
    commit: Callable[[], Any]
    rollback: Callable[[], Any]


OpenDoor = Callable[[Address], AbstractAsyncContextManager[Door]]
DOORS: dict[str, OpenDoor] = {}
ASYNC_DOORS = set[str]()


def door(name: str, *, only_async: bool = False) -> Callable[[Callable[[Address], AsyncIterator[Door]]], None]:
    def add(opened: Callable[[Address], AsyncIterator[Door]]) -> None:
        DOORS[name] = asynccontextmanager(opened)
        if only_async:
            ASYNC_DOORS.add(name)

    return add


# ---- psycopg ----


@door("psycopg")
async def _psycopg(at: Address) -> AsyncIterator[Door]:
    with psycopg.connect(**at) as connection:
        yield Door(connection, connection.commit, connection.rollback)


@door("psycopg with factories of its own")
async def _psycopg_factories(at: Address) -> AsyncIterator[Door]:
    with psycopg.connect(**at, row_factory=dict_row, cursor_factory=psycopg.RawCursor) as connection:
        yield Door(connection, connection.commit, connection.rollback)


@door("psycopg async", only_async=True)
async def _psycopg_async(at: Address) -> AsyncIterator[Door]:
    async with await psycopg.AsyncConnection.connect(**at, row_factory=dict_row) as connection:
        yield Door(connection, connection.commit, connection.rollback)


# ---- asyncpg ----


def _asyncpg_parts(at: Address) -> dict[str, Any]:
    return {k: at[k] for k in ("host", "port", "user", "password")} | {"database": at["dbname"]}


async def _in_transaction(connection: Any) -> Door:
    transaction = connection.transaction()
    await transaction.start()
    return Door(connection, transaction.commit, transaction.rollback)


@door("asyncpg", only_async=True)
async def _asyncpg(at: Address) -> AsyncIterator[Door]:
    connection = await asyncpg.connect(**_asyncpg_parts(at))
    try:
        yield await _in_transaction(connection)
    finally:
        await connection.close()


@door("asyncpg with json codecs of its own", only_async=True)
async def _asyncpg_codecs(at: Address) -> AsyncIterator[Door]:
    connection = await asyncpg.connect(**_asyncpg_parts(at))
    try:
        for kind in ("json", "jsonb"):
            await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        yield await _in_transaction(connection)
    finally:
        await connection.close()


@door("asyncpg pool", only_async=True)
async def _asyncpg_pool(at: Address) -> AsyncIterator[Door]:
    async with asyncpg.create_pool(**_asyncpg_parts(at), min_size=1, max_size=1) as pool, pool.acquire() as connection:
        yield await _in_transaction(connection)


# ---- SQLAlchemy and SQLModel ----


def _sqlalchemy_url(at: Address, driver: str) -> URL:
    return URL.create(
        f"postgresql+{driver}", at["user"], at["password"] or None, at["host"], int(at["port"]), at["dbname"]
    )


def _engine(at: Address) -> Engine:
    return create_engine(_sqlalchemy_url(at, "psycopg"), poolclass=NullPool)


def _async_engine(at: Address, driver: str) -> AsyncEngine:
    return create_async_engine(_sqlalchemy_url(at, driver), poolclass=NullPool)


@door("SQLAlchemy Connection")
async def _connection(at: Address) -> AsyncIterator[Door]:
    with _engine(at).connect() as connection:
        yield Door(connection, connection.commit, connection.rollback)


@door("SQLAlchemy Session")
async def _session(at: Address) -> AsyncIterator[Door]:
    with Session(_engine(at)) as session:
        yield Door(session, session.commit, session.rollback)


@door("SQLAlchemy scoped_session")
async def _scoped_session(at: Address) -> AsyncIterator[Door]:
    scoped = scoped_session(sessionmaker(_engine(at)))
    try:
        yield Door(scoped, scoped.commit, scoped.rollback)
    finally:
        scoped.remove()


@door("SQLModel Session")
async def _sqlmodel_session(at: Address) -> AsyncIterator[Door]:
    with sqlmodel.Session(_engine(at)) as session:
        yield Door(session, session.commit, session.rollback)


def _asynchronous(driver: str) -> None:
    @door(f"SQLAlchemy AsyncConnection over {driver}", only_async=True)
    async def _async_connection(at: Address) -> AsyncIterator[Door]:
        async with _async_engine(at, driver).connect() as connection:
            yield Door(connection, connection.commit, connection.rollback)

    @door(f"SQLAlchemy AsyncSession over {driver}", only_async=True)
    async def _async_session(at: Address) -> AsyncIterator[Door]:
        async with AsyncSession(_async_engine(at, driver)) as session:
            yield Door(session, session.commit, session.rollback)

    @door(f"SQLModel AsyncSession over {driver}", only_async=True)
    async def _sqlmodel_async_session(at: Address) -> AsyncIterator[Door]:
        async with SQLModelAsyncSession(_async_engine(at, driver)) as session:
            yield Door(session, session.commit, session.rollback)

    @door(f"SQLAlchemy async_scoped_session over {driver}", only_async=True)
    async def _async_scoped_session(at: Address) -> AsyncIterator[Door]:
        scoped = async_scoped_session(async_sessionmaker(_async_engine(at, driver)), scopefunc=lambda: 1)
        try:
            yield Door(scoped, scoped.commit, scoped.rollback)
        finally:
            await scoped.remove()


_asynchronous("psycopg")
_asynchronous("asyncpg")


# ---- Django ----


@door("Django")
async def _django(at: Address) -> AsyncIterator[Door]:
    connection = django_connection(
        ENGINE="django.db.backends.postgresql",
        NAME=at["dbname"],
        USER=at["user"],
        PASSWORD=at["password"],
        HOST=at["host"],
        PORT=at["port"],
    )
    connection.set_autocommit(False)
    try:
        yield Door(connection, connection.commit, connection.rollback)
    finally:
        connection.close()


def django_connection(**database: str) -> Any:
    """`django.db.connection`, pointed at a database."""
    from django.conf import settings

    if not settings.configured:
        settings.configure(DATABASES={"default": database}, USE_TZ=True)
        django.setup()
    from django.db import connection, connections

    connections["default"].close()
    connections.settings["default"] = connections.configure_settings({"default": database})["default"]
    del connections["default"]
    return connection


# ---- what the tests share ----


@pytest.fixture(autouse=True)
def _django_next_to_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests run on an event loop, where Django refuses to work unless told otherwise.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")


@pytest.fixture(params=list(DOORS))
def door_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def enter(door_name: str, address: Address) -> Callable[[], AbstractAsyncContextManager[Door]]:
    return lambda: DOORS[door_name](address)


@dataclass
class Caller:
    """Submits through a connection, in the colour that fits it."""

    client: Client
    async_client: AsyncClient
    name: str

    async def submit_task(self, *args: Any, **options: Any) -> UUID:
        if self.name in ASYNC_DOORS:
            return await self.async_client.submit_task(*args, **options)
        return self.client.submit_task(*args, **options)

    async def submit_many(self, *args: Any, **options: Any) -> list[UUID]:
        if self.name in ASYNC_DOORS:
            return await self.async_client.submit_many(*args, **options)
        return self.client.submit_many(*args, **options)


@pytest.fixture
def caller(client: Client, async_client: AsyncClient, door_name: str) -> Caller:
    return Caller(client, async_client, door_name)


@pytest.fixture
def listener(database_url: str, db: psycopg.Connection) -> Iterator[psycopg.Connection]:
    db.execute("INSERT INTO workers (id, asleep) VALUES ('s', true) ON CONFLICT DO NOTHING")  # else nobody is notified
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("LISTEN tasklib_public")
        yield connection


def heard(listener: psycopg.Connection, db: psycopg.Connection) -> list[str]:
    """The notifications since the last call: all that come before a mark of our own."""
    db.execute("NOTIFY tasklib_public, 'mark'")
    payloads: list[str] = []
    for notification in listener.notifies(timeout=20):
        if notification.payload == "mark":
            return payloads
        payloads.append(notification.payload)
    raise AssertionError("the mark never came")


async def done(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def ids(db: psycopg.Connection) -> list[UUID]:
    return [row[0] for row in db.execute("SELECT id FROM tasks ORDER BY id")]


def row_without_id_and_times(db: psycopg.Connection, task_id: UUID) -> dict[str, Any]:
    """A task's row, its times as distances from its creation."""
    with db.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute("SELECT * FROM tasks WHERE id = %s", [task_id]).fetchone()
    assert row is not None
    created_at = row.pop("created_at")
    del row["id"]
    return {k: v - created_at if isinstance(v, datetime) else v for k, v in row.items()}


@pytest.fixture
def greet() -> Any:
    @task(max_retries=7, tags={"team": "post"})
    def greet(name: str, when: datetime | None = None) -> None: ...

    return greet


EVERYTHING: dict[str, Any] = {
    "delay_seconds": 90,
    "timeout_seconds": 45,
    "priority": "high",
    "tags": {"colon": "a:b", "percent": "100% %s %(x)s", "quote": 'it\'s "so"', "unicode": "ü€😀", "backslash": r"\n"},
    "queue": "mail:fast 100%",
    "required_capabilities": ["b:b", "a%s"],
    "trace_context": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
}


# ---- the suite ----


async def test_commit_makes_the_task_visible_and_not_before(enter: Any, caller: Caller, greet: Any, db: Any) -> None:
    async with enter() as door:
        task_id = await caller.submit_task(greet, name="a", connection=door.connection)
        assert ids(db) == []
        await done(door.commit())
    assert ids(db) == [task_id]


async def test_rollback_leaves_no_task(enter: Any, caller: Caller, greet: Any, db: Any) -> None:
    async with enter() as door:
        await caller.submit_task(greet, name="a", connection=door.connection)
        await caller.submit_many(greet, [{"name": "b"}, {"name": "c"}], connection=door.connection)
        await done(door.rollback())
    assert ids(db) == []


async def test_one_wake_up_for_all_submissions_of_a_transaction_and_none_before_its_commit(
    enter: Any, caller: Caller, greet: Any, db: Any, listener: Any
) -> None:
    async with enter() as door:
        for name in ("a", "b", "c"):
            await caller.submit_task(greet, name=name, connection=door.connection)
        await caller.submit_many(greet, [{"name": "d"}, {"name": "e"}], connection=door.connection)
        assert heard(listener, db) == []
        await done(door.commit())
    assert heard(listener, db) == [""]


async def test_an_idempotency_key_gives_back_the_first_task(enter: Any, caller: Caller, greet: Any, db: Any) -> None:
    async with enter() as door:
        first = await caller.submit_task(greet, name="a", idempotency_key="k:1 100%", connection=door.connection)
        again = await caller.submit_task(greet, name="b", idempotency_key="k:1 100%", connection=door.connection)
        await done(door.commit())
    async with enter() as door:
        later = await caller.submit_task(greet, name="c", idempotency_key="k:1 100%", connection=door.connection)
        await done(door.commit())
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
    async with enter() as door:
        got = await caller.submit_many(batch, connection=door.connection)
        await done(door.commit())
    assert got[3] == stored
    assert got[4] == got[1]
    names = dict(db.execute("SELECT id, kwargs ->> 'name' FROM tasks").fetchall())
    assert [names[i] for i in got] == ["plain", "keyed", "delayed", "stored", "keyed"]


async def test_a_large_batch_goes_through(enter: Any, caller: Caller, greet: Any, db: Any) -> None:
    async with enter() as door:
        got = await caller.submit_many(greet, [{"name": str(i)} for i in range(250)], connection=door.connection)
        await done(door.commit())
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

    async with enter() as door:
        task_id = await caller.submit_task(greet, **arguments, **options, connection=door.connection)
        await done(door.commit())
    assert row_without_id_and_times(db, task_id) == expected


async def test_the_callers_own_writes_share_the_transaction(enter: Any, caller: Caller, greet: Any, db: Any) -> None:
    db.execute("CREATE TABLE orders (id int)")
    try:
        async with enter() as door:
            await execute(door.connection, "INSERT INTO orders VALUES (1)")
            await caller.submit_task(greet, name="a", connection=door.connection)
            await execute(door.connection, "INSERT INTO orders VALUES (2)")
            await done(door.commit())
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
    enter: Any, odd_schema: str, config: Config, greet: Any, db: Any, door_name: str
) -> None:
    there = config.with_changes(schema=odd_schema)
    with Client(there) as client:
        caller = Caller(client, AsyncClient(there), door_name)
        async with enter() as door:
            task_id = await caller.submit_task(greet, name="a", connection=door.connection)
            key = await caller.submit_task(greet, name="b", idempotency_key="k", connection=door.connection)
            await done(door.commit())
        assert {t.id for t in client.list_tasks()} >= {task_id, key}
        caller.async_client.close()
    assert ids(db) == []


async def test_missing_tables_are_explained(enter: Any, config: Config, greet: Any, door_name: str) -> None:
    nowhere = config.with_changes(schema="nowhere")
    caller = Caller(Client(nowhere), AsyncClient(nowhere), door_name)
    async with enter() as door:
        with pytest.raises(SchemaError, match=r"nowhere.*Run: tasklib migrate"):
            await caller.submit_task(greet, name="a", connection=door.connection)


# ---- which colour goes with which call ----


@pytest.mark.parametrize("name", sorted(ASYNC_DOORS))
async def test_an_asynchronous_connection_is_refused_by_the_synchronous_call(
    name: str, address: Address, client: Client, greet: Any
) -> None:
    async with DOORS[name](address) as door:
        with pytest.raises(InvalidOption, match=r"asynchronous connection .*use the awaitable call with it"):
            client.submit_task(greet, name="a", connection=door.connection)


@pytest.mark.parametrize("name", sorted(DOORS.keys() - ASYNC_DOORS))
async def test_a_synchronous_connection_serves_the_awaitable_call_too(
    name: str, address: Address, async_client: AsyncClient, greet: Any, db: Any
) -> None:
    async with DOORS[name](address) as door:
        task_id = await async_client.submit_task(greet, name="a", connection=door.connection)
        await done(door.commit())
    assert ids(db) == [task_id]


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
    assert ids(db) == []


def test_an_engine_is_not_a_connection(address: Address, client: Client, greet: Any) -> None:
    with pytest.raises(InvalidOption, match=r"connection= can't use a sqlalchemy\.engine\.base\.Engine"):
        client.submit_task(greet, name="a", connection=_engine(address))


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


# ---- plain SQL ----


def test_a_row_inserted_by_hand_is_the_same_task_and_wakes_a_worker(client: Client, db: Any, listener: Any) -> None:
    url: dict[str, Any] = {"url": "https://example.com/hook"}
    task_id = client.submit_task("webhook.outbound", registered_elsewhere=True, **url)
    expected = row_without_id_and_times(db, task_id)
    assert heard(listener, db) == [""]

    db.execute(f"INSERT INTO tasks (name, kwargs) VALUES ('webhook.outbound', '{json.dumps(url)}')")
    assert heard(listener, db) == [""]
    by_hand = max(ids(db))
    assert by_hand.version == 7
    assert row_without_id_and_times(db, by_hand) == expected


def test_a_key_inserted_by_hand_is_kept_for_a_day_and_known_to_every_door(client: Client, greet: Any, db: Any) -> None:
    db.execute("INSERT INTO tasks (name, kwargs, idempotency_key) VALUES ('greet', '{\"name\": \"a\"}', 'k')")
    (by_hand,) = ids(db)
    assert client.submit_task(greet, name="b", idempotency_key="k") == by_hand
    assert row_without_id_and_times(db, by_hand)["idempotency_expires_at"] == timedelta(hours=24)


def test_ids_made_by_the_database_sort_by_time(db: Any) -> None:
    for _ in range(20):
        db.execute("INSERT INTO tasks (name) VALUES ('a')")
    inserted = [row[0] for row in db.execute("SELECT id FROM tasks ORDER BY created_at")]
    assert inserted == sorted(inserted)
    assert {i.version for i in inserted} == {7}

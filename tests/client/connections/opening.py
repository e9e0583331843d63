"""Each kind of connection that a caller may submit through, in a transaction of the caller's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import django
import psycopg
import sqlmodel
from psycopg.rows import dict_row
from sqlalchemy import URL, Engine, NullPool, create_engine
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlmodel.ext.asyncio.session import AsyncSession as SQLModelAsyncSession

Address = dict[str, Any]


ODD_SCHEMA = 'We%ird "sch:ema" {due} %s'


@dataclass
class Opened:
    """A caller's connection inside a transaction, and how the caller ends it."""

    connection: Any
    commit: Callable[[], Any]
    rollback: Callable[[], Any]


OpenConnection = Callable[[Address], AbstractAsyncContextManager[Opened]]
CONNECTIONS: dict[str, OpenConnection] = {}
ASYNC_CONNECTIONS = set[str]()


def connection_kind(
    name: str, *, only_async: bool = False
) -> Callable[[Callable[[Address], AsyncIterator[Opened]]], None]:
    def add(opened: Callable[[Address], AsyncIterator[Opened]]) -> None:
        CONNECTIONS[name] = asynccontextmanager(opened)
        if only_async:
            ASYNC_CONNECTIONS.add(name)

    return add


# ---- psycopg ----


@connection_kind("psycopg")
async def _psycopg(at: Address) -> AsyncIterator[Opened]:
    with psycopg.connect(**at) as connection:
        yield Opened(connection, connection.commit, connection.rollback)


@connection_kind("psycopg with factories of its own")
async def _psycopg_factories(at: Address) -> AsyncIterator[Opened]:
    with psycopg.connect(**at, row_factory=dict_row, cursor_factory=psycopg.RawCursor) as connection:
        yield Opened(connection, connection.commit, connection.rollback)


@connection_kind("psycopg async", only_async=True)
async def _psycopg_async(at: Address) -> AsyncIterator[Opened]:
    async with await psycopg.AsyncConnection.connect(**at, row_factory=dict_row) as connection:
        yield Opened(connection, connection.commit, connection.rollback)


# ---- asyncpg ----


def _asyncpg_parts(at: Address) -> dict[str, Any]:
    return {k: at[k] for k in ("host", "port", "user", "password")} | {"database": at["dbname"]}


async def _in_transaction(connection: Any) -> Opened:
    transaction = connection.transaction()
    await transaction.start()
    return Opened(connection, transaction.commit, transaction.rollback)


@connection_kind("asyncpg", only_async=True)
async def _asyncpg(at: Address) -> AsyncIterator[Opened]:
    connection = await asyncpg.connect(**_asyncpg_parts(at))
    try:
        yield await _in_transaction(connection)
    finally:
        await connection.close()


@connection_kind("asyncpg with json codecs of its own", only_async=True)
async def _asyncpg_codecs(at: Address) -> AsyncIterator[Opened]:
    connection = await asyncpg.connect(**_asyncpg_parts(at))
    try:
        for kind in ("json", "jsonb"):
            await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        yield await _in_transaction(connection)
    finally:
        await connection.close()


@connection_kind("asyncpg pool", only_async=True)
async def _asyncpg_pool(at: Address) -> AsyncIterator[Opened]:
    async with asyncpg.create_pool(**_asyncpg_parts(at), min_size=1, max_size=1) as pool, pool.acquire() as connection:
        yield await _in_transaction(connection)


# ---- SQLAlchemy and SQLModel ----


def _sqlalchemy_url(at: Address, driver: str) -> URL:
    return URL.create(
        f"postgresql+{driver}", at["user"], at["password"] or None, at["host"], int(at["port"]), at["dbname"]
    )


def engine(at: Address) -> Engine:
    return create_engine(_sqlalchemy_url(at, "psycopg"), poolclass=NullPool)


def _async_engine(at: Address, driver: str) -> AsyncEngine:
    return create_async_engine(_sqlalchemy_url(at, driver), poolclass=NullPool)


@connection_kind("SQLAlchemy Connection")
async def _connection(at: Address) -> AsyncIterator[Opened]:
    with engine(at).connect() as connection:
        yield Opened(connection, connection.commit, connection.rollback)


@connection_kind("SQLAlchemy Session")
async def _session(at: Address) -> AsyncIterator[Opened]:
    with Session(engine(at)) as session:
        yield Opened(session, session.commit, session.rollback)


@connection_kind("SQLAlchemy scoped_session")
async def _scoped_session(at: Address) -> AsyncIterator[Opened]:
    scoped = scoped_session(sessionmaker(engine(at)))
    try:
        yield Opened(scoped, scoped.commit, scoped.rollback)
    finally:
        scoped.remove()


@connection_kind("SQLModel Session")
async def _sqlmodel_session(at: Address) -> AsyncIterator[Opened]:
    with sqlmodel.Session(engine(at)) as session:
        yield Opened(session, session.commit, session.rollback)


def _asynchronous(driver: str) -> None:
    @connection_kind(f"SQLAlchemy AsyncConnection over {driver}", only_async=True)
    async def _async_connection(at: Address) -> AsyncIterator[Opened]:
        async with _async_engine(at, driver).connect() as connection:
            yield Opened(connection, connection.commit, connection.rollback)

    @connection_kind(f"SQLAlchemy AsyncSession over {driver}", only_async=True)
    async def _async_session(at: Address) -> AsyncIterator[Opened]:
        async with AsyncSession(_async_engine(at, driver)) as session:
            yield Opened(session, session.commit, session.rollback)

    @connection_kind(f"SQLModel AsyncSession over {driver}", only_async=True)
    async def _sqlmodel_async_session(at: Address) -> AsyncIterator[Opened]:
        async with SQLModelAsyncSession(_async_engine(at, driver)) as session:
            yield Opened(session, session.commit, session.rollback)

    @connection_kind(f"SQLAlchemy async_scoped_session over {driver}", only_async=True)
    async def _async_scoped_session(at: Address) -> AsyncIterator[Opened]:
        scoped = async_scoped_session(async_sessionmaker(_async_engine(at, driver)), scopefunc=lambda: 1)
        try:
            yield Opened(scoped, scoped.commit, scoped.rollback)
        finally:
            await scoped.remove()


_asynchronous("psycopg")
_asynchronous("asyncpg")


# ---- Django ----


@connection_kind("Django")
async def _django(at: Address) -> AsyncIterator[Opened]:
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
        yield Opened(connection, connection.commit, connection.rollback)
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

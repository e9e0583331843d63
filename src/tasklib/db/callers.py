"""Running a query on a connection that belongs to the caller, in the caller's transaction.

Understood: psycopg (sync, async), asyncpg, SQLAlchemy and SQLModel (Connection, Session and their async forms), Django.
None of them is imported here; a connection is known by its own class.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import Any, TypeVar

import psycopg

from tasklib.db.database import execute, execute_async, read_as_text
from tasklib.db.failures import explained
from tasklib.db.query import Query
from tasklib.errors import InvalidOption
from tasklib.sql import PARAMETER, numbered, statement

T = TypeVar("T")


class ConnectionKind(Enum):
    PSYCOPG = "psycopg.Connection"
    PSYCOPG_ASYNC = "psycopg.AsyncConnection"
    ASYNCPG = "asyncpg connection"
    SQLALCHEMY = "SQLAlchemy Session or Connection"
    SQLALCHEMY_ASYNC = "SQLAlchemy AsyncSession or AsyncConnection"
    DJANGO = "Django connection"


_ASYNC = frozenset({ConnectionKind.PSYCOPG_ASYNC, ConnectionKind.ASYNCPG, ConnectionKind.SQLALCHEMY_ASYNC})


def kind_of(connection: object) -> ConnectionKind:
    """What sort of connection this is; InvalidOption if it is none we know."""
    if isinstance(connection, psycopg.AsyncConnection):
        return ConnectionKind.PSYCOPG_ASYNC
    if isinstance(connection, psycopg.Connection):
        return ConnectionKind.PSYCOPG
    for base in type(connection).__mro__:
        if kind := _BY_CLASS.get((base.__module__.partition(".")[0], base.__name__)):
            return kind
    raise InvalidOption(
        f"connection= can't use a {type(connection).__module__}.{type(connection).__qualname__}. "
        f"It takes: {', '.join(k.value for k in ConnectionKind)}."
    )


_BY_CLASS = {
    ("asyncpg", "Connection"): ConnectionKind.ASYNCPG,
    ("asyncpg", "PoolConnectionProxy"): ConnectionKind.ASYNCPG,
    ("sqlalchemy", "Session"): ConnectionKind.SQLALCHEMY,
    ("sqlalchemy", "scoped_session"): ConnectionKind.SQLALCHEMY,
    ("sqlalchemy", "Connection"): ConnectionKind.SQLALCHEMY,
    ("sqlalchemy", "AsyncSession"): ConnectionKind.SQLALCHEMY_ASYNC,
    ("sqlalchemy", "async_scoped_session"): ConnectionKind.SQLALCHEMY_ASYNC,
    ("sqlalchemy", "AsyncConnection"): ConnectionKind.SQLALCHEMY_ASYNC,
    ("django", "ConnectionProxy"): ConnectionKind.DJANGO,
    ("django", "BaseDatabaseWrapper"): ConnectionKind.DJANGO,
}


def is_async(connection: object) -> bool:
    """Whether queries on this connection are awaited; InvalidOption if it is none we know."""
    return kind_of(connection) in _ASYNC


def run_on(connection: Any, query: Query[T], schema: str | None) -> T:
    """Run a query on the caller's synchronous connection. Neither commits nor rolls back."""
    kind = kind_of(connection)
    if kind in _ASYNC:
        raise InvalidOption(f"this is an asynchronous connection ({kind.value}); use the awaitable call with it.")
    try:
        return _run(kind, connection, query, schema)
    except Exception as e:
        raise explained(e) from e


async def run_on_async(connection: Any, query: Query[T], schema: str | None) -> T:
    """Run a query on the caller's synchronous or asynchronous connection. Neither commits nor rolls back."""
    kind = kind_of(connection)
    try:
        if kind in _ASYNC:
            return await _run_async(kind, connection, query, schema)
        return _run(kind, connection, query, schema)
    except Exception as e:
        raise explained(e) from e


def _run(kind: ConnectionKind, connection: Any, query: Query[T], schema: str | None) -> T:
    if kind is ConnectionKind.PSYCOPG:
        return execute(connection, query, schema)
    text = statement(query.name, schema)
    if kind is ConnectionKind.SQLALCHEMY:
        core = connection if _is_core(connection) else connection.connection()
        _require_postgresql(core.dialect.name)
        result = core.execute(_sqlalchemy_text(text), dict(query.parameters))
        return query.read([tuple(row) for row in result] if result.returns_rows else ())
    _require_postgresql(connection.vendor)
    with connection.cursor() as cursor:
        _load_like_psycopg(cursor.cursor, query)
        cursor.execute(text, dict(query.parameters))
        return query.read(cursor.fetchall() if cursor.description else ())


async def _run_async(kind: ConnectionKind, connection: Any, query: Query[T], schema: str | None) -> T:
    if kind is ConnectionKind.PSYCOPG_ASYNC:
        return await execute_async(connection, query, schema)
    text = statement(query.name, schema)
    if kind is ConnectionKind.ASYNCPG:
        text, names = numbered(query.name, schema)
        values = [query.parameters[name] for name in names]
        return query.read([tuple(row) for row in await connection.fetch(text, *values)])
    core = connection if _is_core(connection) else await connection.connection()
    _require_postgresql(core.dialect.name)
    result = await core.execute(_sqlalchemy_text(text), dict(query.parameters))
    return query.read([tuple(row) for row in result] if result.returns_rows else ())


def _load_like_psycopg(cursor: Any, query: Query[T]) -> None:
    """Read values as psycopg does: Django leaves JSON as text, and times without a zone if its settings say so."""
    if (adapters := getattr(cursor, "adapters", None)) is not None:  # psycopg2 has none
        for oid in _DJANGO_LOADS:
            if (loader := psycopg.adapters.get_loader(oid, psycopg.pq.Format.TEXT)) is not None:
                adapters.register_loader(oid, loader)
        read_as_text(cursor, query)


_DJANGO_LOADS = tuple(psycopg.adapters.types[name].oid for name in ("jsonb", "timestamptz"))


def _is_core(connection: Any) -> bool:
    """True for SQLAlchemy's Connection. A Session has one, and SQLModel's warns those who call its execute()."""
    return hasattr(connection, "dialect")


def _require_postgresql(database: str) -> None:
    if database != "postgresql":
        raise InvalidOption(f"connection= is a connection to {database}; TaskLib needs PostgreSQL.")


@cache
def _sqlalchemy_text(text: str) -> Any:
    from sqlalchemy import text as sqlalchemy_text

    escaped = text.replace(":", r"\:")
    return sqlalchemy_text(PARAMETER.sub(lambda match: f":{match[1]}" if match[1] else "%", escaped))

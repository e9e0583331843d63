"""A query of nothing but text, straight to libpq and back.

psycopg's cursor adapts every value, looks after transactions and makes an object for each answer: more work than one
INSERT. Here are only its steps on the wire, a generator like psycopg's own, which `connection.wait()` takes in either
colour, with all its care for interrupts and cancellation. For our own connections: in autocommit mode, and nobody else
uses them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen

from tasklib.db.query import Query
from tasklib.sql import numbered

T = TypeVar("T")
AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


@dataclass(slots=True)
class _Session:
    encoding: str
    prepared: dict[str, bytes | None] = field(default_factory=dict)
    """The statements it has seen, and what they are prepared as."""


_sessions: WeakKeyDictionary[AnyConnection, _Session] = WeakKeyDictionary()


def exchange(connection: AnyConnection, query: Query[T], schema: str | None) -> PQGen[T]:
    """The steps of a query with `all_text`: `connection.wait(exchange(...))`."""
    session = _sessions.get(connection) or _sessions.setdefault(connection, _Session(connection.info.encoding))
    encoding, pgconn = session.encoding, connection.pgconn
    text, names = numbered(query.name, schema)
    values = [None if (value := query.parameters[name]) is None else value.encode(encoding) for name in names]
    if prepared := (yield from _prepared(connection, session, query.name, text)):
        pgconn.send_query_prepared(prepared, values)
    else:
        pgconn.send_query_params(text.encode(encoding), values)
    return query.read(list(_rows((yield from _result(pgconn, encoding)), encoding)))


def _prepared(connection: AnyConnection, session: _Session, name: str, text: str) -> PQGen[bytes | None]:
    """What the statement is prepared as, from its second use on: a short program has no second."""
    if connection.prepare_threshold is None:
        return None
    if name not in session.prepared:
        session.prepared[name] = None
        return None
    prepared = session.prepared[name]
    if prepared is None:
        prepared = f"tasklib_{name}".encode()
        connection.pgconn.send_prepare(prepared, text.encode(session.encoding))
        yield from _result(connection.pgconn, session.encoding)
        session.prepared[name] = prepared
    return prepared


def _result(pgconn: pq.abc.PGconn, encoding: str) -> PQGen[pq.abc.PGresult]:
    results = yield from generators.execute(pgconn)
    result: pq.abc.PGresult = results[-1]
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise psycopg.errors.error_from_result(result, encoding=encoding)
    return result


def _rows(result: pq.abc.PGresult, encoding: str) -> Iterator[tuple[str | None, ...]]:
    columns = range(result.nfields)
    for row in range(result.ntuples):
        values = (result.get_value(row, column) for column in columns)
        yield tuple(None if value is None else value.decode(encoding) for value in values)

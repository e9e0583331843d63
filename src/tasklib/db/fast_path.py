"""A query whose parameters travel as text, straight to libpq and back.

psycopg's cursor adapts every value, looks after transactions and makes an object for each answer: more work than one
INSERT. Here are only its steps on the wire, a generator like psycopg's own, for `connection.wait()` or `wait` below.
For our own connections: in autocommit mode, in UTF-8, and not used concurrently.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import abc, generators, pq
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.waiting import Ready, Wait

from tasklib.db.query import Query
from tasklib.db.timeouts import TimedAsyncConnection, overdue
from tasklib.sql import numbered

T = TypeVar("T")
_CANCEL_SECONDS = 5.0
AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


@dataclass(slots=True)
class _Session:
    before_18: bool
    prepared: dict[str, bytes | None] = field(default_factory=dict)
    """The statements it has seen, and the names of their prepared forms."""
    reader: abc.Transformer = field(default_factory=Transformer)
    """Reads answers; it remembers how each type is read."""


_sessions: WeakKeyDictionary[AnyConnection, _Session] = WeakKeyDictionary()


def is_before_18(connection: AnyConnection) -> bool:
    """For `statement`: whether the server is older than PostgreSQL 18."""
    return connection.pgconn.server_version < 180000


def exchange(
    connection: AnyConnection, query: Query[T], schema: str | None, then: Callable[[T], None] | None = None
) -> PQGen[T]:
    """The steps of a query with `all_text`: `connection.wait(exchange(...))`; `then` is part of the last one."""
    pgconn = connection.pgconn
    session = _sessions.get(connection) or _sessions.setdefault(connection, _Session(is_before_18(connection)))
    text, names = numbered(query.name, schema, before_18=session.before_18)
    # Most are text: a call for each would cost a single INSERT a twentieth of its time here.
    parameters = query.parameters
    values = [v.encode() if type(v := parameters[name]) is str else in_text(v) for name in names]
    prepared = session.prepared.get(query.name)
    if prepared is None and connection.prepare_threshold is not None:
        prepared = yield from _prepared(pgconn, session, query.name, text)
    result = None
    if prepared is not None:
        pgconn.send_query_prepared(prepared, values)
        try:
            result = yield from _result(pgconn)
        except psycopg.errors.InvalidSqlStatementName:
            # After a rollback psycopg deallocates all statements of its session: ours too.
            session.prepared.pop(query.name)
    if result is None:
        pgconn.send_query_params(text.encode(), values)
        result = yield from _result(pgconn)
    answer = query.read(_rows(session.reader, result, query.types) if result.ntuples else ())
    if then is not None:
        then(answer)
    return answer


def _prepared(pgconn: pq.abc.PGconn, session: _Session, name: str, text: str) -> PQGen[bytes | None]:
    """Prepare the statement at its second use: a short program has no second."""
    if name not in session.prepared:
        session.prepared[name] = None
        return None
    prepared = f"tasklib_{name}".encode()
    pgconn.send_prepare(prepared, text.encode())
    yield from _result(pgconn)
    session.prepared[name] = prepared
    return prepared


def _result(pgconn: pq.abc.PGconn) -> PQGen[pq.abc.PGresult]:
    results = yield from generators.execute(pgconn)
    result: pq.abc.PGresult = results[-1]
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise psycopg.errors.error_from_result(result, encoding="utf-8")
    return result


def _rows(reader: abc.Transformer, result: pq.abc.PGresult, types: tuple[int, ...]) -> list[tuple[Any, ...]]:
    reader.set_pgresult(result, set_loaders=not types)
    if types:
        reader.set_loader_types(types, pq.Format.TEXT)
    return reader.load_rows(0, result.ntuples, tuple)


def in_text(value: object) -> bytes | None:
    """A parameter as it travels; its type is what the statement says."""
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode()
        case list() | tuple():
            return array(value).encode()
        case _:
            return str(value).encode()


def array(values: Iterable[str]) -> str:
    """An array of texts as PostgreSQL reads it."""
    quoted = [value.replace("\\", "\\\\").replace('"', '\\"') for value in values]
    return '{"' + '","'.join(quoted) + '"}' if quoted else "{}"


def plain_array(values: Iterable[object]) -> str:
    """An array of ids or numbers: nothing in them needs quoting."""
    return "{" + ",".join(map(str, values)) + "}"


def is_alive(connection: AnyConnection) -> bool:
    """False if the server has hung up while the connection lay idle: then its socket is readable."""
    try:
        # Twice: the first may only read what the server said before it hung up.
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.Error:
        return False
    return connection.pgconn.status == psycopg.pq.ConnStatus.OK


def discard(connection: AnyConnection) -> None:
    """Close the socket now, without waiting for the server."""
    connection.pgconn.finish()


async def wait(connection: psycopg.AsyncConnection[Any], steps: PQGen[T]) -> T:
    """Like `await connection.wait(steps)`, but without its timer: a tenth of what a submission costs here.

    After an error or a cancellation in the middle of an answer the connection is of no use.
    """
    assert isinstance(connection, TimedAsyncConnection)
    try:
        return await _Walk(connection.pgconn.socket, steps).end(connection)
    except asyncio.CancelledError:
        # The server is told to stop before anything else is asked of it.
        with suppress(psycopg.Error):
            await connection.cancel_safe(timeout=_CANCEL_SECONDS)
        connection.pgconn.finish()
        raise


class _Walk(Generic[T]):
    """Takes each step at the moment the socket is ready, not a turn of the loop later."""

    def __init__(self, socket: int, steps: PQGen[T]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket
        self._steps = steps
        self._reads = self._writes = False
        self._end: asyncio.Future[T] = self._loop.create_future()

    async def end(self, limited: TimedAsyncConnection | None = None) -> T:
        """The value that the steps return; an error if they take longer than the connection allows."""
        timer = None
        if limited is not None and (timeout := limited.statement_timeout) < math.inf:
            timer = self._loop.call_later(timeout, self._overdue, limited)
        try:
            self._go_on(None)
            return await self._end
        finally:
            if timer is not None:
                timer.cancel()
            self._watch(reads=False, writes=False)

    def _go_on(self, ready: Ready | None) -> None:
        if self._end.done():
            return
        try:
            wanted = next(self._steps) if ready is None else self._steps.send(ready)
            self._watch(reads=bool(wanted & Wait.R), writes=bool(wanted & Wait.W))
        except StopIteration as end:
            self._end.set_result(end.value)
        except BaseException as e:
            # Now, not when the waiting coroutine is resumed: libpq has closed a socket that was lost, and its number
            # may be that of another one by then.
            self._watch(reads=False, writes=False)
            self._end.set_exception(e)

    def _overdue(self, connection: TimedAsyncConnection) -> None:
        # The answer may have arrived while something else held up the loop: uvloop runs timers before it reads.
        self._go_on(Ready.R)
        if not self._end.done():
            self._watch(reads=False, writes=False)
            self._end.set_exception(overdue(connection))

    def _watch(self, *, reads: bool, writes: bool) -> None:
        # A watch that goes on is begun anew: libuv ends one in which it saw an error, though there may be more to read.
        if self._reads:
            self._loop.remove_reader(self._socket)
        if self._writes:
            self._loop.remove_writer(self._socket)
        if reads:
            self._loop.add_reader(self._socket, self._go_on, Ready.R)
        if writes:
            self._loop.add_writer(self._socket, self._go_on, Ready.W)
        self._reads, self._writes = reads, writes

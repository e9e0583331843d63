"""Prepared statements at libpq's level: a worker's hot statements, at a third of the cost of a cursor's round trip.

Every parameter travels as text, so a statement says the type of each with a cast where PostgreSQL can't infer it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from tasklib.db.arrays import array
from tasklib.db.query import Query
from tasklib.sql import statement

T = TypeVar("T")
_PARAMETER = re.compile(r"%\((\w+)\)s|%%")


class Prepared:
    """The prepared statements of one connection."""

    def __init__(self, connection: psycopg.AsyncConnection, schema: str | None) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._schema = schema
        self._known: set[str] = set()

    async def run(self, query: Query[T]) -> T:
        """Run a query whose parameters are text, numbers, or None. Nobody else may use the connection meanwhile."""
        text, names = numbered(query.name, self._schema)
        if query.name not in self._known:
            self._pgconn.send_prepare(query.name.encode(), text)
            await self._answer()
            self._known.add(query.name)
        self._pgconn.send_query_prepared(query.name.encode(), [in_text(query.parameters[name]) for name in names])
        result = await self._answer()
        if result.status != ExecStatus.TUPLES_OK:
            return query.read(())
        rows = Transformer(self._connection)
        rows.set_pgresult(result)
        return query.read(rows.load_rows(0, result.ntuples, tuple))

    async def _answer(self) -> PGresult:
        """The result of what was sent; its error is raised."""
        result = await _results(self._pgconn)
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
        return result


def _results(pgconn: PGconn) -> asyncio.Future[PGresult]:
    """Sends what is left to send and resolves to the answer, once the server is ready for the next statement."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[PGresult] = loop.create_future()
    socket = pgconn.socket
    received: list[PGresult] = []

    def guarded(step: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                step()
            except psycopg.Error as e:
                if not answer.done():
                    answer.set_exception(e)

        return run

    def write() -> None:
        if pgconn.flush() == 0:
            loop.remove_writer(socket)

    def read() -> None:
        pgconn.consume_input()
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is not None:
                received.append(result)
            elif not answer.done():
                answer.set_result(received[-1])
                return

    def forget(_: object) -> None:
        loop.remove_reader(socket)
        loop.remove_writer(socket)

    loop.add_reader(socket, guarded(read))
    if pgconn.flush():
        # Too much for the socket's buffer: send the rest as it empties, and read meanwhile, lest both sides wait.
        loop.add_writer(socket, guarded(write))
    answer.add_done_callback(forget)
    return answer


@cache
def numbered(name: str, schema: str | None) -> tuple[bytes, tuple[str, ...]]:
    """The statement with `$1` for its first parameter, and so on; and their names."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if (parameter := match[1]) is None:
            return "%"
        if parameter not in names:
            names.append(parameter)
        return f"${names.index(parameter) + 1}"

    return _PARAMETER.sub(number, statement(name, schema)).encode(), tuple(names)


def in_text(value: Any) -> bytes | None:
    """A parameter as it travels."""
    match value:
        case None:
            return None
        case list() | tuple():
            return array(value).encode()
        case _:
            return str(value).encode()

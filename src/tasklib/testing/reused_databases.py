"""Databases that are used again: emptying one takes a tenth of the time that copying a template takes.

A test gets a database under a name that no earlier test had, so what an earlier one left running does not find it. A
database whose schema or statistics a test has changed is dropped instead of being used again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.types.json import Jsonb

from tasklib.testing import databases

_TABLES = """
    SELECT format('%I.%I', nspname, relname)
    FROM pg_class JOIN pg_namespace AS schema ON schema.oid = relnamespace
    WHERE relkind = 'r' AND pg_class.oid >= 16384
    ORDER BY pg_class.oid"""

_MOST_TRIES = 100
_ENDING_SECONDS, _MOMENT_SECONDS = 60.0, 0.003
_USED = "SELECT name FROM unnest(%s::text[]) AS name WHERE pg_relation_size(name::regclass) > 0"

# Everything a test might change that emptying the tables does not undo. Objects made after initdb have ids from 16384.
_SHAPE = """
    SELECT md5(concat_ws('|',
        (SELECT string_agg(concat_ws(',', oid, relname, relkind, relnamespace, reloptions, relacl, relreplident), ';'
                           ORDER BY oid) FROM pg_class WHERE oid >= 16384 AND relkind <> 't'),
        (SELECT string_agg(concat_ws(',', oid, xmin), ';' ORDER BY oid) FROM pg_constraint WHERE oid >= 16384),
        (SELECT string_agg(concat_ws(',', oid, xmin), ';' ORDER BY oid) FROM pg_trigger WHERE oid >= 16384),
        (SELECT string_agg(concat_ws(',', oid, xmin), ';' ORDER BY oid) FROM pg_proc WHERE oid >= 16384),
        (SELECT string_agg(concat_ws(',', oid, xmin), ';' ORDER BY oid) FROM pg_namespace),
        (SELECT string_agg(concat_ws(',', oid, xmin), ';' ORDER BY oid) FROM pg_type WHERE oid >= 16384),
        (SELECT string_agg(xmin::text, ';' ORDER BY attrelid, attnum) FROM pg_attribute WHERE attrelid >= 16384),
        (SELECT string_agg(xmin::text, ';' ORDER BY indexrelid) FROM pg_index WHERE indexrelid >= 16384),
        (SELECT string_agg(xmin::text, ';' ORDER BY oid) FROM pg_attrdef),
        (SELECT count(*) FROM pg_statistic WHERE starelid >= 16384),
        (SELECT string_agg(concat_ws(',', setrole, setconfig), ';' ORDER BY setrole) FROM pg_db_role_setting
         WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())),
        (SELECT concat_ws(',', datacl, datconnlimit, datdba) FROM pg_database WHERE datname = current_database()),
        (SELECT count(*) FROM pg_publication), (SELECT count(*) FROM pg_extension),
        (SELECT count(*) FROM pg_largeobject_metadata), (SELECT count(*) FROM pg_event_trigger)))"""


class ReusedDatabases:
    """Copies of one template, for one test after the other. Needs a superuser; others get a new copy each time."""

    def __init__(self, server_url: str, template: str) -> None:
        self._server_url = server_url
        self._template = template
        # Without a limit on statements: on a busy machine it takes a while until a connection is ended.
        self._admin = psycopg.connect(server_url, autocommit=True)
        self._may_empty = self._admin.execute("SHOW is_superuser").fetchone() == ("on",)
        self._free: list[str] = []
        self._shape = ""
        self._tables: list[str] = []
        self._first_rows: dict[str, Any] = {}

    @contextmanager
    def lend(self) -> Iterator[str]:
        """The URL of a database as the template is."""
        name = self._free.pop() if self._free else self._copied()
        try:
            yield databases.with_database(self._server_url, name)
        finally:
            self._take_back(name)

    def close(self) -> None:
        for name in self._free:
            self._drop(name)
        self._admin.close()

    def _copied(self) -> str:
        name = databases.new_name("test")
        databases.create(self._server_url, name, self._template)
        if self._may_empty and not self._shape:
            with self._connected(name) as connection:
                self._tables = [table for (table,) in connection.execute(_TABLES)]
                self._first_rows = {table: rows for table in self._tables if (rows := _rows(connection, table))}
                self._shape = _shape(connection)
        return name

    def _take_back(self, name: str) -> None:
        if not self._may_empty:
            self._drop(name)
            return
        try:
            renamed = self._renamed(name)
        except errors.ObjectInUse:
            self._drop(name)
            return
        if self._emptied(renamed):
            self._free.append(renamed)
        else:
            self._drop(renamed)

    def _renamed(self, name: str) -> str:
        """Under a new name, with all connections to it ended."""
        old, renamed = sql.Identifier(name), databases.new_name("test")
        self._admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(old))
        new = sql.Identifier(renamed)
        for left in reversed(range(_MOST_TRIES)):
            self._end_connections(name)
            try:
                self._admin.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(old, new))
                break
            except errors.ObjectInUse:  # by a connection that was under way, and is not in the list yet
                if not left:
                    raise
                time.sleep(0.05)
        self._admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(new))
        return renamed

    def _end_connections(self, name: str) -> None:
        # PostgreSQL itself would look again only every 100 ms, here and in ALTER DATABASE.
        ending = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        deadline = time.monotonic() + _ENDING_SECONDS
        while self._admin.execute(ending, [name]).fetchall() and time.monotonic() < deadline:
            time.sleep(_MOMENT_SECONDS)
        time.sleep(_MOMENT_SECONDS)  # they leave this list a little before they are gone

    def _emptied(self, name: str) -> bool:
        """Put the tables back to how the template has them; False if more than their rows has changed."""
        with self._connected(name) as connection:
            if _shape(connection) != self._shape:
                return False
            connection.execute("SET session_replication_role = replica")  # the audit refuses to be emptied
            # Only those that were written to: a truncated table costs a dozen files.
            used = {table for (table,) in connection.execute(_USED, [self._tables])}
            used -= {table for table, rows in self._first_rows.items() if _rows(connection, table) == rows}
            if used:
                tables = sql.SQL(", ").join(map(sql.SQL, sorted(used)))
                connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY").format(tables))
            for table in used & self._first_rows.keys():
                insert = sql.SQL("INSERT INTO {0} SELECT * FROM jsonb_populate_recordset(NULL::{0}, %s)")
                connection.execute(insert.format(sql.SQL(table)), [Jsonb(self._first_rows[table])])
            connection.execute("SELECT pg_stat_reset()")
        return True

    def _drop(self, name: str) -> None:
        self._admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _connected(self, name: str) -> psycopg.Connection[Any]:
        return psycopg.connect(databases.with_database(self._server_url, name), autocommit=True)


def _rows(connection: psycopg.Connection[Any], table: str) -> Any:
    found = connection.execute(f"SELECT jsonb_agg(to_jsonb(row)) FROM {table} AS row".encode()).fetchone()
    assert found is not None
    return found[0]


def _shape(connection: psycopg.Connection[Any]) -> str:
    found = connection.execute(_SHAPE).fetchone()
    assert found is not None
    return str(found[0])

"""Moving a shard: freeze its schema, copy every row into another one, and open that.

    leaving      the schema from which it moves: it takes no writes any more
    arriving     the schema to which it moves: it takes no writes yet
    copied       the same, once it has every row
    live         the same, opened: it takes writes

A frozen schema refuses writes by a trigger on each table, which begins each statement that writes. To make the
triggers, the tables are locked against writes: so no transaction that has written is open then, and none comes after.
Programs take the refusal (25006) for that of a server that has become a standby, and try again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
from psycopg import errors as pg

from tasklib.config import Config
from tasklib.db.connect import connect
from tasklib.errors import SchemaError
from tasklib.migrations.expected import tables
from tasklib.migrations.revisions import VERSION_TABLE
from tasklib.migrations.statements import literal, name_in
from tasklib.sql import quoted

LEAVING, ARRIVING, COPIED, LIVE = "leaving", "arriving", "copied", "live"
_FROZEN = "tasklib_frozen"
"""The name of the trigger on each table, and of its function, whose comment is the mark."""
_LOCK_MS = 800
"""So long the tables are waited for, and others wait behind: less than the second after which PostgreSQL looks for
deadlocks, so that no transaction of a program is ever ended for it."""
_LOCK_MS_BEHIND_VACUUM = 1500
"""Where VACUUM is at work: PostgreSQL ends an automatic one for a lock that has waited for a second."""


class MoveMark(NamedTuple):
    """What a schema that takes part in a move says of it."""

    move: str
    """The id of the move."""
    role: str
    """LEAVING, ARRIVING, COPIED or LIVE."""
    other: str
    """The address at the other end, without its password."""

    @property
    def is_frozen(self) -> bool:
        return self.role != LIVE


class CopiedTable(NamedTuple):
    """What was copied of one table."""

    name: str
    rows: int


@contextmanager
def opened(config: Config) -> Iterator[tuple[psycopg.Connection, str]]:
    """A connection with a transaction, and the schema that our tables are in. Commit it yourself."""
    with connect(config, autocommit=False, statement_timeout=math.inf) as connection:
        try:
            schema = _schema_of(connection, config)
            connection.rollback()
            yield connection, schema
        finally:
            connection.rollback()


def mark_of(connection: psycopg.Connection, schema: str) -> MoveMark | None:
    """The mark of this schema; None if it takes part in no move."""
    found = _run(
        connection, "SELECT obj_description(to_regprocedure(%s), 'pg_proc')", [f"{name_in(_FROZEN, schema)}()"]
    ).fetchone()
    return None if found is None or found[0] is None else MoveMark(**json.loads(found[0]))


def freeze(connection: psycopg.Connection, schema: str, mark: MoveMark, message: str) -> str | None:
    """Have this schema refuse writes; None, or what has to end before that is possible."""
    why = _held(connection, schema) if mark.role == LEAVING else None
    if why is None and not _is_locked(connection, schema, "SHARE ROW EXCLUSIVE"):
        return _writers(connection, schema)
    if why is None and mark.role == LEAVING:
        why = _held(connection, schema)
    if why is not None:
        connection.rollback()
        return why
    _write_function(connection, schema, message)
    _write_mark(connection, schema, mark)
    for table in _tables():
        _run(
            connection,
            f"CREATE OR REPLACE TRIGGER {_FROZEN} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE "
            f"ON {name_in(table, schema)} FOR EACH STATEMENT EXECUTE FUNCTION {name_in(_FROZEN, schema)}()",
        )
    connection.commit()
    return None


def thaw(connection: psycopg.Connection, schema: str, mark: MoveMark | None) -> None:
    """Have this schema take writes again; it keeps this mark, or none. No transaction that reads is waited for."""
    if _has_function(connection, schema):
        _write_function(connection, schema, None)
        _write_mark(connection, schema, mark)
    connection.commit()
    if not _has_triggers(connection, schema):
        pass
    elif _is_locked(connection, schema, "ACCESS EXCLUSIVE"):
        for table in _tables():
            _run(connection, f"DROP TRIGGER IF EXISTS {_FROZEN} ON {name_in(table, schema)}")
    else:  # they refuse nothing any more
        return
    if mark is None:
        _run(connection, f"DROP FUNCTION IF EXISTS {name_in(_FROZEN, schema)}()")
    connection.commit()


def copy(source: Config, target: Config, move: str) -> list[CopiedTable]:
    """Copy all rows and sequences into a schema that waits for them, in one transaction, and compare both."""
    with opened(source) as (old, here), opened(target) as (new, there):
        _run(old, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        _run(new, f"LOCK TABLE {_all(there)} IN ACCESS EXCLUSIVE MODE")
        for connection, schema in ((old, here), (new, there)):  # indexes are written as it leads to what they name
            _run(connection, "SELECT set_config('search_path', %s, true)", [quoted(schema)])
        waiting = mark_of(new, there)
        if waiting is None or waiting.move != move or waiting.role not in (ARRIVING, COPIED):
            raise SchemaError(
                f"schema {there!r} does not wait for this shard any more: the move was given up or ended."
            )
        for table in _tables():
            _run(new, f"ALTER TABLE {name_in(table, there)} DISABLE TRIGGER USER")
        _run(new, f"TRUNCATE {_all(there)} RESTART IDENTITY")
        copied = []
        for table in _tables():
            _copy_rows(old, here, new, there, table)
            _copy_sequences(old, here, new, there, table)
            copied.append(_compared(old, here, new, there, table))
        _copy_indexes(old, here, new, there)
        for table in _tables():
            _run(new, f"ALTER TABLE {name_in(table, there)} ENABLE TRIGGER USER")
        _run(new, f"ANALYZE {_all(there)}")
        _write_mark(new, there, waiting._replace(role=COPIED))
        with opened(source) as (now, schema):  # not in the snapshot of the copy
            leaving = mark_of(now, schema)
        if leaving is None or leaving.move != move:
            raise SchemaError(f"schema {here!r} took writes while it was copied: the move was given up.")
        new.commit()
    return copied


def is_unused(connection: psycopg.Connection, schema: str) -> bool:
    """Whether there is no task in this schema, and no worker has ever been there."""
    found = _run(
        connection,
        f"SELECT EXISTS (SELECT FROM {name_in('tasks', schema)}) "
        f"OR EXISTS (SELECT FROM {name_in('worker_registrations', schema)})",
    ).fetchone()
    return found == (False,)


def size_of(connection: psycopg.Connection, schema: str) -> tuple[int, int, int]:
    """About how many tasks are in a schema, how many run, and how many bytes all tables with their indexes have."""
    names = ", ".join(literal(name_in(table, schema)) for table in _tables())
    found = _run(
        connection,
        f"SELECT (SELECT count(*) FROM {name_in('tasks', schema)}), "
        f"(SELECT count(*) FROM {name_in('tasks', schema)} WHERE state = 'running'), "
        f"(SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(ARRAY[{names}]) AS name)::bigint",
    ).fetchone()
    assert found is not None
    return found[0], found[1], found[2]


def _run(connection: psycopg.Connection, sql: str, parameters: Sequence[object] = ()) -> psycopg.Cursor:
    return connection.execute(sql.encode(), parameters or None)


def _tables() -> tuple[str, ...]:
    return (*tables(), VERSION_TABLE)


def _all(schema: str) -> str:
    return ", ".join(name_in(table, schema) for table in _tables())


def _schema_of(connection: psycopg.Connection, config: Config) -> str:
    found = _run(
        connection,
        "SELECT nspname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE pg_class.oid = to_regclass(%s)",
        [name_in(VERSION_TABLE, config.schema)],
    ).fetchone()
    if found is None:
        where = f"schema {config.schema!r}" if config.schema else "this database"
        raise SchemaError(f"TaskLib's tables are not in {where}.")
    return str(found[0])


def _held(connection: psycopg.Connection, schema: str) -> str | None:
    """Why tasks are not at rest: workers run them. Where a lease has ended, the next leader takes the task back."""
    found = _run(
        connection,
        f"SELECT count(*), min(id::text), string_agg(DISTINCT worker_id, ', ') FROM {name_in('tasks', schema)} "
        "WHERE state = 'running' AND locked_until > clock_timestamp()",
    ).fetchone()
    if found is None or not found[0]:
        return None
    what = "1 task runs" if found[0] == 1 else f"{found[0]} tasks run"
    return f"{what}, such as {found[1]}, on {found[2]}"


def _is_locked(connection: psycopg.Connection, schema: str, mode: str) -> bool:
    """Lock all tables until the end of the transaction; False, and the transaction is over, if that takes too long."""
    names = ", ".join(literal(name_in(table, schema)) for table in _tables())
    vacuumed = _run(
        connection,
        f"SELECT EXISTS (SELECT FROM pg_locks WHERE relation = ANY (ARRAY[{names}]::regclass[]::oid[]) "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "AND mode = 'ShareUpdateExclusiveLock' AND granted)",
    ).fetchone() == (True,)
    try:
        _run(connection, f"SET LOCAL statement_timeout = {_LOCK_MS_BEHIND_VACUUM if vacuumed else _LOCK_MS}")
        _run(connection, f"LOCK TABLE {_all(schema)} IN {mode} MODE")
        _run(connection, "SET LOCAL statement_timeout = 0")
    except pg.QueryCanceled:
        connection.rollback()
        return False
    return True


def _writers(connection: psycopg.Connection, schema: str) -> str:
    """Which sessions have transactions open that have written."""
    names = ", ".join(literal(name_in(table, schema)) for table in _tables())
    found = _run(
        connection,
        "SELECT DISTINCT pid, application_name, extract(epoch FROM clock_timestamp() - xact_start)::integer "
        "FROM pg_locks JOIN pg_stat_activity USING (pid) "
        f"WHERE relation = ANY (ARRAY[{names}]::regclass[]::oid[]) AND granted AND pid <> pg_backend_pid() "
        "AND mode IN ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareRowExclusiveLock', 'AccessExclusiveLock')",
    ).fetchall()
    connection.rollback()
    sessions = ", ".join(f"{pid} ({name or 'no name'}, for {age or 0} s)" for pid, name, age in found)
    return f"transactions that write are open: {sessions}" if found else "transactions that write follow each other"


def _write_function(connection: psycopg.Connection, schema: str, refusal: str | None) -> None:
    """What the triggers do: refuse with this message, or nothing."""
    does = "RETURN NULL"
    if refusal is not None:
        does = f"RAISE EXCEPTION USING ERRCODE = 'read_only_sql_transaction', MESSAGE = {literal(refusal)}"
    _run(
        connection,
        f"CREATE OR REPLACE FUNCTION {name_in(_FROZEN, schema)}() RETURNS trigger LANGUAGE plpgsql AS "
        + literal(f"BEGIN {does}; END"),
    )


def _has_function(connection: psycopg.Connection, schema: str) -> bool:
    name = f"{name_in(_FROZEN, schema)}()"
    return _run(connection, "SELECT to_regprocedure(%s) IS NOT NULL", [name]).fetchone() == (True,)


def _has_triggers(connection: psycopg.Connection, schema: str) -> bool:
    names = ", ".join(literal(name_in(table, schema)) for table in _tables())
    found = _run(
        connection,
        f"SELECT EXISTS (SELECT FROM pg_trigger WHERE tgname = %s AND tgrelid = ANY (ARRAY[{names}]::regclass[]))",
        [_FROZEN],
    )
    return found.fetchone() == (True,)


def _write_mark(connection: psycopg.Connection, schema: str, mark: MoveMark | None) -> None:
    text = "NULL" if mark is None else literal(json.dumps(mark._asdict()))
    _run(connection, f"COMMENT ON FUNCTION {name_in(_FROZEN, schema)}() IS {text}")


def _columns(connection: psycopg.Connection, schema: str, table: str) -> list[str]:
    found = _run(
        connection,
        "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped "
        "AND attgenerated = '' ORDER BY attnum",
        [name_in(table, schema)],
    ).fetchall()
    return [name for (name,) in found]


def _copy_rows(old: psycopg.Connection, here: str, new: psycopg.Connection, there: str, table: str) -> None:
    columns, known = _columns(old, here, table), _columns(new, there, table)
    if unknown := sorted(set(columns) ^ set(known)):
        raise SchemaError(f"{table} has not the same columns at both ends: {', '.join(unknown)}.")
    listed = ", ".join(map(quoted, columns))
    with (
        old.cursor().copy(f"COPY (SELECT {listed} FROM {name_in(table, here)}) TO STDOUT".encode()) as from_there,
        new.cursor().copy(f"COPY {name_in(table, there)} ({listed}) FROM STDIN".encode()) as into,
    ):
        for data in from_there:
            into.write(data)


def _copy_sequences(old: psycopg.Connection, here: str, new: psycopg.Connection, there: str, table: str) -> None:
    found = _run(
        old,
        "SELECT attname::text, pg_get_serial_sequence(%s, attname) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attidentity <> ''",
        [name_in(table, here), name_in(table, here)],
    ).fetchall()
    for column, sequence in found:
        place = _run(old, f"SELECT last_value, is_called FROM {sequence}").fetchone()
        assert place is not None
        _run(new, "SELECT setval(pg_get_serial_sequence(%s, %s), %s, %s)", [name_in(table, there), column, *place])


def _compared(old: psycopg.Connection, here: str, new: psycopg.Connection, there: str, table: str) -> CopiedTable:
    """The number of rows, once it is sure that they are the same in both."""
    listed = ", ".join(map(quoted, _columns(old, here, table)))
    digests = [
        _run(
            connection,
            "SELECT count(*), coalesce(sum(('x' || left(md5(ROW(" + listed + ")::text), 15))::bit(60)::bigint), 0) "
            f"FROM {name_in(table, schema)}",
        ).fetchone()
        for connection, schema in ((old, here), (new, there))
    ]
    if digests[0] != digests[1]:
        raise SchemaError(f"{table} is not the same at both ends after copying: {digests[0]} and {digests[1]}.")
    assert digests[0] is not None
    return CopiedTable(table, digests[0][0])


def _copy_indexes(old: psycopg.Connection, here: str, new: psycopg.Connection, there: str) -> None:
    """Indexes that an operator has added, such as those for searches."""
    for table in _tables():
        known = {name for name, _ in _indexes(new, there, table)}
        for name, definition in _indexes(old, here, table):
            if name not in known:
                _run(new, definition.replace(f" ON {_written(old, here, table)} ", f" ON {name_in(table, there)} ", 1))


def _indexes(connection: psycopg.Connection, schema: str, table: str) -> list[tuple[str, str]]:
    return _run(
        connection,
        "SELECT relname::text, pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        "WHERE indrelid = %s::regclass AND indisvalid",
        [name_in(table, schema)],
    ).fetchall()


def _written(connection: psycopg.Connection, schema: str, table: str) -> str:
    """The name of a table as PostgreSQL writes it into the definition of an index."""
    row = _run(connection, "SELECT quote_ident(%s) || '.' || quote_ident(%s)", [schema, table]).fetchone()
    assert row is not None
    return str(row[0])

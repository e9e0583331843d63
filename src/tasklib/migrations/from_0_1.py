"""Carry the tables of TaskLib 0.1.0 over: rename them, let the migrations make new ones, copy every row, drop the old.

All of it happens in the caller's transaction, so either every row arrives or nothing has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasklib.errors import SchemaError
from tasklib.sql import quoted

if TYPE_CHECKING:
    from sqlalchemy import Connection

_ASIDE = "tasklib_0_1_"
"""What the old tables' names begin with until they are dropped."""

_TABLES = {
    "tasks": "tasks",
    "workers": "worker_registrations",
    "leadership": "leadership",
    "pauses": "pauses",
    "settings": "settings",
    "snapshots": None,  # the new leader counts anew, within seconds
    "tally_deltas": "stats_deltas",
    "tallies": "stats",
    "depths": "depths",
    "api_tokens": "api_tokens",
    "audit": "audit",
}
"""The tables of 0.1.0, and those that take their rows."""

_RENAMED = {"workers": {"status": "reported_status", "tallied": "counted"}}

# 0.1.0 let in by hand what now has bounds: such a value becomes the nearest one within them, and its row is kept.
_FIRST, _LAST = "timestamptz '0001-01-03 00:00:00+00'", "timestamptz '9999-12-29 23:59:59.999999+00'"
_TIMES = ("tasks", "workers", "pauses", "api_tokens")
_MOST = {
    ("tasks", "retry_count"): 1_000_000_000,
    ("tasks", "crash_count"): 1_000_000_000,
    ("tasks", "lease_token"): 1_000_000_000_000_000,
    ("settings", "promote_to_medium_after_seconds"): 31_536_000_000,
    ("settings", "promote_to_high_after_seconds"): 31_536_000_000,
}
_SILENT_SECONDS = 90
"""0.1.0's default: a worker that was silent for this long is dead."""


def set_aside(connection: Connection, schema: str) -> None:
    """Rename the tables of 0.1.0 and drop its functions, so that their names are free."""
    there = [table for table in _TABLES if _columns(connection, schema, table)]
    _run(connection, f"LOCK TABLE {', '.join(_name(schema, table) for table in there)} IN ACCESS EXCLUSIVE MODE")
    if "workers" in there:
        _refuse_live_workers(connection, schema)
    for table in there:
        for trigger in _all(connection, _TRIGGERS, schema=schema, table=table):
            _run(connection, f"DROP TRIGGER {quoted(trigger)} ON {_name(schema, table)}")
        if "id" in _columns(connection, schema, table) and table != "audit":
            _run(connection, f"ALTER TABLE {_name(schema, table)} ALTER COLUMN id DROP DEFAULT")
        for kind, name in _rows(connection, _RELATIONS, schema=schema, table=table):
            _run(connection, f"ALTER {kind} {_name(schema, name)} RENAME TO {quoted(_ASIDE + name)}")
    # Without CASCADE: objects that depend on them stop us, instead of being dropped with them.
    for function in _all(connection, _FUNCTIONS, schema=schema):
        _run(connection, f"DROP FUNCTION {function}")


def copy(connection: Connection, schema: str) -> dict[str, int]:
    """Copy every row into the new tables, drop the old ones, and return the number of rows by table."""
    counts = {}
    for old, new in _TABLES.items():
        aside = _ASIDE + old
        columns = _columns(connection, schema, aside)
        if not columns:
            continue
        if new:
            counts[new] = _copy_rows(connection, schema, old, new, columns)
        _run(connection, f"DROP TABLE {_name(schema, aside)}")
    return counts


def _copy_rows(connection: Connection, schema: str, old: str, new: str, columns: dict[str, str]) -> int:
    source, target = _name(schema, _ASIDE + old), _name(schema, new)
    if new == "settings":  # its one row is there from the beginning
        _run(connection, f"DELETE FROM {target} WHERE EXISTS (SELECT FROM {source})")
    names = ", ".join(quoted(_RENAMED.get(old, {}).get(column, column)) for column in columns)
    values = ", ".join(_value(old, column, type_) for column, type_ in columns.items())
    # The rows are as they were: no key is freed, and no worker is there to be woken.
    _run(connection, f"ALTER TABLE {target} DISABLE TRIGGER USER")
    _run(connection, f"INSERT INTO {target} ({names}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {source}")
    _run(connection, f"ALTER TABLE {target} ENABLE TRIGGER USER")
    if new == "audit":
        sequence = "pg_get_serial_sequence(%(table)s, 'id')"
        last = f"SELECT setval({sequence}, max(id)) FROM {target.replace('%', '%%')} HAVING max(id) IS NOT NULL"
        connection.exec_driver_sql(last, {"table": target})
    _run(connection, f"ANALYZE {target}")
    copied, there = (int(_run(connection, f"SELECT count(*) FROM {table}")) for table in (target, source))
    if copied != there:
        raise SchemaError(f"{there} rows of {old} came out as {copied}. Nothing was changed.")
    return copied


def _value(table: str, column: str, type_: str) -> str:
    name = quoted(column)
    if type_ == "timestamp with time zone" and table in _TIMES:
        return f"CASE WHEN {name} < {_FIRST} THEN {_FIRST} WHEN {name} > {_LAST} THEN {_LAST} ELSE {name} END"
    if (most := _MOST.get((table, column))) is not None:
        return f"CASE WHEN {name} < 0 THEN 0 WHEN {name} > {most} THEN {most} ELSE {name} END"
    if column == "required_capabilities":
        return f"CASE WHEN array_ndims({name}) > 1 THEN ARRAY(SELECT unnest({name})) ELSE {name} END"
    return name


def _refuse_live_workers(connection: Connection, schema: str) -> None:
    live = _all(
        connection,
        f"SELECT id FROM {_name(schema, 'workers').replace('%', '%%')} WHERE status <> 'dead' "
        f"AND last_heartbeat > clock_timestamp() - interval '{_SILENT_SECONDS} seconds' ORDER BY id",
    )
    if live:
        raise SchemaError(
            f"{len(live)} workers of TaskLib 0.1.0 were alive in the last {_SILENT_SECONDS} seconds: "
            f"{', '.join(live[:5])}{', ...' if len(live) > 5 else ''}. Nothing was changed. "
            "Stop them and run this again; after a kill, wait until they have been silent for so long."
        )


_TRIGGERS = """
    SELECT tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname = %(schema)s AND relname = %(table)s AND NOT tgisinternal"""
_RELATIONS = """
    WITH old AS (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
                 WHERE nspname = %(schema)s AND relname = %(table)s)
    SELECT 'INDEX', relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid IN (TABLE old)
    UNION ALL
    SELECT 'SEQUENCE', relname FROM pg_depend JOIN pg_class ON pg_class.oid = objid
    WHERE refobjid IN (TABLE old) AND relkind = 'S'
    UNION ALL
    SELECT 'TABLE', %(table)s"""
_FUNCTIONS = """
    SELECT format('%%I.%%I(%%s)', nspname, proname, pg_get_function_identity_arguments(p.oid))
    FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
    WHERE nspname = %(schema)s AND proname LIKE 'tasklib\\_%%' ORDER BY p.oid DESC"""
_COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod)
    FROM pg_attribute JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname = %(schema)s AND relname = %(table)s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""


def _columns(connection: Connection, schema: str, table: str) -> dict[str, str]:
    """The columns of a table with their types; none if there is no such table."""
    return dict(_rows(connection, _COLUMNS, schema=schema, table=table))


def _all(connection: Connection, sql: str, **parameters: str) -> list[str]:
    return [row[0] for row in _rows(connection, sql, **parameters)]


def _rows(connection: Connection, sql: str, **parameters: str) -> list[Any]:
    return [tuple(row) for row in connection.exec_driver_sql(sql, parameters).all()]


def _run(connection: Connection, sql: str) -> Any:
    result = connection.exec_driver_sql(sql.replace("%", "%%"))
    return result.scalar() if result.returns_rows else None


def _name(schema: str, table: str) -> str:
    return f"{quoted(schema)}.{quoted(table)}"

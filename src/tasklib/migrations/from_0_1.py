"""Carry the tables of TaskLib 0.1.0 over: rename them, let the migrations make new ones, copy every row, drop the old.

All of it happens in the caller's transaction, so either every row arrives or nothing has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasklib.errors import SchemaError
from tasklib.migrations.statements import MOMENTS, columns_of, firsts, name_in, nearest, rename, run
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
    there = [table for table in _TABLES if columns_of(connection, schema, table)]
    run(connection, f"LOCK TABLE {', '.join(name_in(table, schema) for table in there)} IN ACCESS EXCLUSIVE MODE")
    if "workers" in there:
        _refuse_live_workers(connection, schema)
    for table in there:
        for trigger in firsts(connection, _TRIGGERS, schema=schema, table=table):
            run(connection, f"DROP TRIGGER {quoted(trigger)} ON {name_in(table, schema)}")
        if "id" in columns_of(connection, schema, table) and table != "audit":
            run(connection, f"ALTER TABLE {name_in(table, schema)} ALTER COLUMN id DROP DEFAULT")
        rename(connection, schema, table, _ASIDE)
    # Without CASCADE: objects that depend on them stop us, instead of being dropped with them.
    for function in firsts(connection, _FUNCTIONS, schema=schema):
        run(connection, f"DROP FUNCTION {function}")


def copy(connection: Connection, schema: str) -> dict[str, int]:
    """Copy every row into the new tables, drop the old ones, and return the number of rows by table."""
    counts = {}
    for old, new in _TABLES.items():
        aside = _ASIDE + old
        columns = columns_of(connection, schema, aside)
        if not columns:
            continue
        if new:
            counts[new] = _copy_rows(connection, schema, old, new, columns)
        run(connection, f"DROP TABLE {name_in(aside, schema)}")
    return counts


def _copy_rows(connection: Connection, schema: str, old: str, new: str, columns: dict[str, str]) -> int:
    source, target = name_in(_ASIDE + old, schema), name_in(new, schema)
    if new == "settings":  # its one row is there from the beginning
        run(connection, f"DELETE FROM {target} WHERE EXISTS (SELECT FROM {source})")
    names = ", ".join(quoted(_RENAMED.get(old, {}).get(column, column)) for column in columns)
    values = ", ".join(_value(old, column, type_) for column, type_ in columns.items())
    # The rows are as they were: no key is freed, and no worker is there to be woken.
    run(connection, f"ALTER TABLE {target} DISABLE TRIGGER USER")
    run(connection, f"INSERT INTO {target} ({names}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {source}")
    run(connection, f"ALTER TABLE {target} ENABLE TRIGGER USER")
    if new == "audit":
        sequence = "pg_get_serial_sequence(%(table)s, 'id')"
        last = f"SELECT setval({sequence}, max(id)) FROM {target.replace('%', '%%')} HAVING max(id) IS NOT NULL"
        connection.exec_driver_sql(last, {"table": target})
    run(connection, f"ANALYZE {target}")
    copied, there = (int(run(connection, f"SELECT count(*) FROM {table}")) for table in (target, source))
    if copied != there:
        raise SchemaError(f"{there} rows of {old} came out as {copied}. Nothing was changed.")
    return copied


def _value(table: str, column: str, type_: str) -> str:
    name = quoted(column)
    if type_ == "timestamp with time zone" and table in _TIMES:
        return nearest(name, *MOMENTS)
    if (most := _MOST.get((table, column))) is not None:
        return nearest(name, "0", str(most))
    if column == "required_capabilities":
        return f"CASE WHEN array_ndims({name}) > 1 THEN ARRAY(SELECT unnest({name})) ELSE {name} END"
    return name


def _refuse_live_workers(connection: Connection, schema: str) -> None:
    live = firsts(
        connection,
        f"SELECT id FROM {name_in('workers', schema).replace('%', '%%')} WHERE status <> 'dead' "
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
_FUNCTIONS = """
    SELECT format('%%I.%%I(%%s)', nspname, proname, pg_get_function_identity_arguments(p.oid))
    FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
    WHERE nspname = %(schema)s AND proname LIKE 'tasklib\\_%%' ORDER BY p.oid DESC"""

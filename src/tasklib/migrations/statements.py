"""What migrations ask and tell the database: statements with names filled in, and what a table consists of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tasklib.sql import quoted

if TYPE_CHECKING:
    from sqlalchemy import Connection

MOMENTS = ("timestamptz '0001-01-03 00:00:00+00'", "timestamptz '9999-12-29 23:59:59.999999+00'")
"""The earliest and the latest time that a table of ours takes."""


def exists(connection: Connection, sql: str, **parameters: str) -> bool:
    row = connection.exec_driver_sql(sql, parameters).first()
    return row is not None and row[0] is not None


def run(connection: Connection, sql: str) -> Any:
    """Run a statement without parameters and return its first value; a percent sign in a name is just that."""
    result = connection.exec_driver_sql(sql.replace("%", "%%"))
    return result.scalar() if result.returns_rows else None


def rows(connection: Connection, sql: str, **parameters: str) -> list[Any]:
    return [tuple(row) for row in connection.exec_driver_sql(sql, parameters).all()]


def firsts(connection: Connection, sql: str, **parameters: str) -> list[str]:
    return [row[0] for row in rows(connection, sql, **parameters)]


def name_in(table: str, schema: str | None) -> str:
    return f"{quoted(schema)}.{quoted(table)}" if schema else quoted(table)


def nearest(value: str, least: str, most: str) -> str:
    """An SQL expression: the value, or the bound that it is beyond. Null stays null."""
    return f"CASE WHEN {value} < {least} THEN {least} WHEN {value} > {most} THEN {most} ELSE {value} END"


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def filled(file: str, marks: Mapping[str, str]) -> str:
    """A file of SQL beside this one with its {marks} filled in, all at once: a name may look like a mark."""
    text = files("tasklib.migrations").joinpath(file).read_text(encoding="utf-8")
    return re.sub(r"\{(\w+)\}", lambda match: marks[match[1]], text)


def schema_of(connection: Connection, table: str) -> str:
    """The schema that a table is in; by its name alone it may be any of the search_path."""
    found = "SELECT relnamespace FROM pg_class WHERE oid = %(table)s::regclass"
    name = connection.exec_driver_sql(f"SELECT nspname FROM pg_namespace WHERE oid = ({found})", {"table": table})
    return str(name.scalar_one())


def columns_of(connection: Connection, schema: str, table: str) -> dict[str, str]:
    """The columns of a table with their types; none if there is no such table."""
    return dict(rows(connection, _COLUMNS, schema=schema, table=table))


def rename(connection: Connection, schema: str, table: str, prefix: str) -> None:
    """Put `prefix` before the names of a table, its indexes and its sequences, so that their names are free."""
    for kind, name in rows(connection, _RELATIONS, schema=schema, table=table):
        run(connection, f"ALTER {kind} {name_in(name, schema)} RENAME TO {quoted(prefix + name)}")


_COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod)
    FROM pg_attribute JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname = %(schema)s AND relname = %(table)s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_RELATIONS = """
    WITH old AS (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
                 WHERE nspname = %(schema)s AND relname = %(table)s)
    SELECT 'INDEX', relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid IN (TABLE old)
    UNION ALL
    SELECT 'SEQUENCE', relname FROM pg_depend JOIN pg_class ON pg_class.oid = objid
    WHERE refobjid IN (TABLE old) AND relkind = 'S'
    UNION ALL
    SELECT 'TABLE', %(table)s"""

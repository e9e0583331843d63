"""Take over the tasks of an earlier library: a table with the columns of ours that it has, under the same names.

The table itself stays. If its name is in the way, it is renamed, in the transaction that makes the new one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tasklib.errors import SchemaError
from tasklib.formatting import shell_option
from tasklib.migrations.statements import (
    MOMENTS,
    columns_of,
    exists,
    filled,
    firsts,
    literal,
    name_in,
    nearest,
    rename,
    rows,
    run,
)
from tasklib.sql import quoted

if TYPE_CHECKING:
    from sqlalchemy import Connection

ASIDE = "before_tasklib_"
"""What the table's name begins with after it was in the way."""

NEEDED = ("id", "name", "state", "kwargs", "scheduled_at", "created_at", "retry_count", "max_retries")
"""Without these columns a table is not one of tasks."""

_STATES = ("pending", "running", "completed", "failed", "cancelled", "dead_letter")
_TIMES = ("scheduled_at", "started_at", "completed_at", "created_at", "next_retry_at")
_JSON = {"args": "'{}'", "kwargs": "'{}'", "tags": "'{}'", "result": "NULL"}
_NUMBERS = {
    "retry_count": ("0", "0", "1000000000"),
    "max_retries": ("3", "0", "2147483647"),
    "timeout_seconds": ("NULL", "0", "2147483647"),
    "priority": ("0", "-10", "100"),
}
"""What a missing value becomes, and the bounds."""
_NOT_TAKEN = ("worker_id", "locked_until")
"""Of leases, which end with the old workers."""


class OlderTable(NamedTuple):
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What became of the tasks of an earlier library."""

    states: dict[str, int]
    """How many were copied, by the state that they have now."""
    table: str
    """Where the old table is now, with all its rows."""
    left: tuple[str, ...] = field(default=())
    """Its columns that TaskLib has no place for: their values are only in the old table."""


def find(connection: Connection, table: str) -> OlderTable:
    """The table of that name, such as `tasks` or `public.tasks`; SchemaError if it can't be one of tasks."""
    found = rows(connection, _FIND, table=table)
    if not found:
        raise SchemaError(f"there is no table {table!r} to take tasks over from. Name it with its schema: public.tasks")
    old = OlderTable(*found[0])
    columns = columns_of(connection, *old)
    if "lease_token" in columns:
        raise SchemaError(f"{_shown(old)} is a table of TaskLib itself: there is nothing to take over from it.")
    if missing := [name for name in NEEDED if name not in columns]:
        raise SchemaError(
            f"{_shown(old)} is no table of tasks: it has no {', '.join(missing)}. Nothing was changed. "
            "Copy its rows into a table with these columns, and take them over from there"
        )
    return old


def hint(connection: Connection, table: str, schema: str | None) -> str:
    """What the refusal of such a table adds if it holds the tasks of an earlier library."""
    try:
        shown = _shown(find(connection, table))
    except SchemaError:
        return ""
    option = f" {shell_option('--schema', schema)}" if schema else ""
    return f". To run the tasks that are in it: tasklib migrate {shell_option('--take-over', shown)}{option}"


def lock(connection: Connection, old: OlderTable) -> None:
    """Keep all other sessions from writing to the table, and from taking it over, until the transaction ends."""
    run(connection, f"LOCK TABLE {name_in(old.name, old.schema)} IN ACCESS EXCLUSIVE MODE")


def require_at_rest(connection: Connection, old: OlderTable, zone: str) -> None:
    """SchemaError if old workers may be running tasks, or if a row is none that can be taken over."""
    source = name_in(old.name, old.schema)
    columns = columns_of(connection, *old)
    if not rows(connection, _ZONE, zone=zone):
        raise SchemaError(f"PostgreSQL knows no time zone {zone!r}. Nothing was changed.")
    if unknown := firsts(connection, f"SELECT DISTINCT state::text FROM {_escaped(source)} WHERE NOT ({_KNOWN})"):
        raise SchemaError(
            f"{_shown(old)} has tasks in states that TaskLib doesn't know: {', '.join(map(str, unknown))}. "
            f"Nothing was changed. Give them one of {', '.join(_STATES)}, and run this again"
        )
    doubled = int(run(connection, f"SELECT count(*) - count(DISTINCT id) FROM {source}"))
    if doubled:
        raise SchemaError(f"{_shown(old)} has {doubled} rows without an id of their own. Nothing was changed.")
    if "args" in columns:
        positional = "args IS NOT NULL AND args::jsonb NOT IN ('{}', '[]', 'null')"
        if number := int(run(connection, f"SELECT count(*) FROM {source} WHERE {positional}")):
            raise SchemaError(
                f"{_shown(old)} has {number} tasks with something in args, which TaskLib would not hand to a function. "
                "Nothing was changed. Move it into kwargs, under the names of the parameters"
            )
    if "locked_until" in columns:
        until = _time("locked_until", columns["locked_until"], zone)
        leased = f"SELECT count(*) FROM {source} WHERE state = 'running' AND {until} > clock_timestamp()"
        if number := int(run(connection, leased)):
            raise SchemaError(
                f"{number} tasks of {_shown(old)} are running under leases that have not ended. Nothing was changed. "
                "Stop the old workers, and run this again when locked_until has passed; or, if no worker is left, "
                f"after: UPDATE {source} SET locked_until = NULL WHERE state = 'running'"
            )


def set_aside(connection: Connection, old: OlderTable) -> OlderTable:
    """Rename the table with its indexes and sequences, so that their names are free."""
    aside = old._replace(name=ASIDE + old.name)
    if exists(connection, "SELECT to_regclass(%(aside)s)", aside=name_in(aside.name, aside.schema)):
        raise SchemaError(
            f"{_shown(old)} would become {_shown(aside)}, and that is there already. Rename that one first."
        )
    rename(connection, *old, ASIDE)
    return aside


def copy(connection: Connection, old: OlderTable, schema: str, zone: str) -> TakenOver:
    """Copy the rows that TaskLib's table has not got yet."""
    columns = columns_of(connection, *old)
    source, target = name_in(old.name, old.schema), name_in("tasks", schema)
    marks = {"columns": _values(columns, zone), "source": source, "target": target}
    text = filled("older_table.sql", marks)
    states = {state: int(number) for state, number in rows(connection, _escaped(text))}
    lost = f"SELECT count(*) FROM {source} old WHERE NOT EXISTS (SELECT FROM {target} WHERE id = old.id::uuid)"
    if number := int(run(connection, lost)):
        raise SchemaError(f"{number} rows of {_shown(old)} did not arrive. Nothing was changed.")
    run(connection, f"ANALYZE {target}")
    known = {"id", "name", "state", "error", *_TIMES, *_JSON, *_NUMBERS, *_NOT_TAKEN}
    return TakenOver(states, _shown(old), tuple(column for column in columns if column not in known))


def _values(columns: dict[str, str], zone: str) -> str:
    """Each column as ours has it: of our type, within our bounds, and null where the old table has no such column."""
    values = {"id": "id::uuid", "name": "name::text", "state": "state::text"}
    values["error"] = "error::text" if "error" in columns else "NULL"
    for name, otherwise in _JSON.items():
        values[name] = f"COALESCE({name}::text::jsonb, {otherwise})" if name in columns else f"{otherwise}::jsonb"
    for name, (otherwise, *bounds) in _NUMBERS.items():
        value = nearest(f"{name}::bigint", *bounds) if name in columns else "NULL::bigint"
        values[name] = f"COALESCE({value}, {otherwise})"
    for name in _TIMES:
        value = _time(name, columns[name], zone) if name in columns else "NULL::timestamptz"
        values[name] = nearest(value, *MOMENTS)
    return ",\n           ".join(f"{value} AS {name}" for name, value in values.items())


def _time(name: str, type_: str, zone: str) -> str:
    if type_.startswith("timestamp") and type_.endswith("without time zone"):
        return f"({name} AT TIME ZONE {literal(zone)})"
    if type_.startswith("timestamp"):
        return name
    raise SchemaError(f"{name} of the old table is of type {type_}, not timestamp. Nothing was changed.")


def _shown(old: OlderTable) -> str:
    """As people and SQL write it: quoted only where it must be."""
    return ".".join(part if re.fullmatch("[a-z_][a-z0-9_]*", part) else quoted(part) for part in old)


def _escaped(sql: str) -> str:
    return sql.replace("%", "%%")


_KNOWN = f"state::text IN ({', '.join(literal(state) for state in _STATES)})"
_ZONE = "SELECT FROM pg_timezone_names WHERE lower(name) = lower(%(zone)s) LIMIT 1"
_FIND = """
    SELECT nspname, relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
    WHERE c.oid = to_regclass(%(table)s) AND relkind IN ('r', 'p')"""

"""Migrations: Alembic underneath, `tasklib migrate` on top.

migrate(config)            # idempotent; safe when many processes do it at once. Of several shards, call it for each
pending(config)            # revisions still to run; () means up to date
carry_over(config)         # once, from tables of TaskLib 0.1.0
take_over(config, "tasks") # the tasks of an earlier library's table
script("jobs")             # the SQL for a schema, for a DBA
roles("jobs")              # the SQL for roles with the least rights
"""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors as pg

from tasklib.config import Config
from tasklib.db.connect import connect
from tasklib.errors import SchemaError
from tasklib.migrations import from_0_1, older_table
from tasklib.migrations.distributed import triggers_allowed
from tasklib.migrations.revisions import (
    VERSION_TABLE,
    head,
    is_of_0_1,
    known,
    missing_after,
    require_current,
    require_shard,
    require_utf8,
)
from tasklib.migrations.statements import exists, filled, literal, name_in, rows, run, schema_of
from tasklib.sql import quoted

# Alembic and SQLAlchemy are imported where they are used: each worker and server asks for the revision when it starts,
# and must not wait for them.
if TYPE_CHECKING:
    from alembic.config import Config as AlembicConfig
    from sqlalchemy import Connection
    from sqlalchemy.exc import DBAPIError

__all__ = ["ROLES", "carry_over", "check", "migrate", "pending", "roles", "script", "take_over"]

ROLES = ("owner", "reader", "producer", "worker", "server")
"""The roles that `roles` makes."""

# Alembic keeps the migration that is running in module globals: one at a time in a process.
_one_at_a_time = threading.Lock()


def migrate(config: Config) -> tuple[str, ...]:
    """Bring the schema up to date and return the revisions that were run."""
    with _connection(config) as connection:
        _require_utf8(connection)
        _prepare(connection, config.schema)
        todo = _todo(connection, config.schema)
        if todo:
            _upgrade(connection, config.schema)
        _number(connection, config)
        connection.commit()
    return todo


def _number(connection: Connection, config: Config) -> None:
    """Write the shard's number into the schema, unless it has tasks whose ids name another one."""
    schema = schema_of(connection, name_in(VERSION_TABLE, config.schema))
    found = run(connection, f"SELECT {name_in('tasklib_shard', schema)}()")
    if config.shard in (found, 0):  # a program that says nothing of shards may migrate any
        return
    if found or exists(connection, f"SELECT 1 FROM {name_in('tasks', schema).replace('%', '%%')} LIMIT 1"):
        require_shard(found, config.shard, schema)
    run(
        connection,
        f"CREATE OR REPLACE FUNCTION {name_in('tasklib_shard', schema)}() RETURNS integer "
        f"LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT {config.shard}'",
    )


def carry_over(config: Config) -> dict[str, int]:
    """Replace the tables of TaskLib 0.1.0 by ours with every row in them; returns the number of rows by table.

    One transaction: it does all or nothing. Workers and servers of 0.1.0 must have been stopped.
    """
    with _connection(config) as connection:
        _require_utf8(connection)
        _require_0_1(connection, config.schema)
        _prepare(connection, config.schema)
        _require_0_1(connection, config.schema)  # unless another process was faster
        schema = schema_of(connection, name_in(VERSION_TABLE, config.schema))
        from_0_1.set_aside(connection, schema)
        run(connection, f"DELETE FROM {name_in(VERSION_TABLE, schema)}")
        _upgrade(connection, schema)
        copied = from_0_1.copy(connection, schema)
        _number(connection, config)
        connection.commit()
    return copied


def take_over(config: Config, table: str, *, time_zone: str = "UTC") -> older_table.TakenOver:
    """Copy the tasks of an earlier library's table into ours; `time_zone` is that of its times without one.

    Workers of the earlier library must have been stopped. Its table stays; if it has the name and the place of ours, it
    is renamed. Safe to repeat: rows that have been copied are left alone.
    """
    with _connection(config) as connection:
        _require_utf8(connection)
        old = older_table.find(connection, table)
        if _has_our_name(connection, old, config.schema):
            schema = old.schema
            older_table.lock(connection, old)
            older_table.find(connection, table)  # unless another process was faster
            older_table.require_at_rest(connection, old, time_zone)
            old = older_table.set_aside(connection, old)
            run(connection, _version_table(schema))
            _upgrade(connection, schema)
        else:
            _prepare(connection, config.schema)
            if _todo(connection, config.schema):
                _upgrade(connection, config.schema)
            schema = schema_of(connection, name_in(VERSION_TABLE, config.schema))
            older_table.lock(connection, old)
            older_table.require_at_rest(connection, old, time_zone)
        taken = older_table.copy(connection, old, schema, time_zone)
        _number(connection, config)
        connection.commit()
    return taken


def pending(config: Config) -> tuple[str, ...]:
    """The revisions `migrate` would run. Raises SchemaError if the database is newer than this TaskLib."""
    with _connection(config) as connection:
        return _todo(connection, config.schema)


def check(config: Config) -> None:
    """Raise a SchemaError that says what to do unless the schema fits this version of TaskLib."""
    with _connection(config) as connection:
        _require_utf8(connection)
        require_current(_revision(connection, config.schema), config.schema)


def script(schema: str | None = None) -> str:
    """All migrations as one SQL script, without touching a database."""
    from alembic import command

    buffer = io.StringIO()
    alembic = _alembic(schema)
    alembic.output_buffer = buffer
    with _one_at_a_time:
        command.upgrade(alembic, head(), sql=True)
    create = f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)};\n\n" if schema else ""
    return create + buffer.getvalue()


def roles(schema: str | None = None) -> str:
    """An SQL script that makes roles with the least rights, for the tables in this schema: `tasklib_reader` and so on.

    In a schema of their own they are named after it.
    """
    names = {role: f"{schema or 'tasklib'}_{role}" for role in ROLES}
    marks = {
        **{role: quoted(name) for role, name in names.items()},
        "names": ", ".join(literal(name) for name in names.values()),
        "owner_name": literal(names["owner"]),
        "schema": quoted(schema or "public"),
        "schema_name": literal(schema or "public"),
    }
    return filled("roles.sql", marks)


def _upgrade(connection: Connection, schema: str | None) -> None:
    from alembic import command

    alembic = _alembic(schema)
    alembic.attributes["connection"] = connection
    where = schema_of(connection, name_in(VERSION_TABLE, schema))
    with _one_at_a_time, triggers_allowed(connection, where):
        command.upgrade(alembic, head())


def _has_our_name(connection: Connection, old: older_table.OlderTable, schema: str | None) -> bool:
    """Whether our `tasks` would have the name and the schema of the old table."""
    same = "SELECT to_regclass(%(ours)s) = to_regclass(%(old)s)"
    return rows(connection, same, ours=name_in("tasks", schema), old=name_in(old.name, old.schema)) == [(True,)]


def _require_0_1(connection: Connection, schema: str | None) -> None:
    revision = _revision(connection, schema)
    if not is_of_0_1(revision):
        where = f"schema {schema!r}" if schema else "this database"
        raise SchemaError(
            f"there is nothing to carry over: {where} has no tables of TaskLib 0.1.0 "
            f"({f'it is at revision {revision}' if revision else 'it has none of TaskLib at all'}). "
            "Create tables or bring them up to date with: tasklib migrate"
        )


def _alembic(schema: str | None) -> AlembicConfig:
    from alembic.config import Config as AlembicConfig

    config = AlembicConfig()
    config.set_main_option("script_location", str(files("tasklib.migrations")).replace("%", "%%"))
    config.attributes["schema"] = schema
    return config


@contextmanager
def _connection(config: Config) -> Iterator[Connection]:
    from sqlalchemy import create_engine
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool

    # A plain psycopg connection underneath: any libpq string works, and errors are ours.
    engine = create_engine("postgresql+psycopg://", creator=lambda: _open(config), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as e:
        raise _explained(e, config.schema) from e


def _open(config: Config) -> psycopg.Connection:
    return connect(config, autocommit=False, statement_timeout=math.inf)  # an index on a large table takes its time


def _require_utf8(connection: Connection) -> None:
    require_utf8(run(connection, "SHOW server_encoding"), run(connection, "SELECT current_database()"))


def _prepare(connection: Connection, schema: str | None) -> None:
    """Create the schema and the version table, and lock it: one process migrates, the rest wait and find it done."""
    versions = name_in(VERSION_TABLE, schema)
    if schema and not exists(connection, "SELECT 1 FROM pg_namespace WHERE nspname = %(name)s", name=schema):
        _create(connection, f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
    if not exists(connection, "SELECT to_regclass(%(name)s)", name=versions):
        _revision(connection, schema)  # refuses a foreign `tasks` before anything is created beside it
        _create(connection, _version_table(schema))
    run(connection, f"LOCK TABLE {versions} IN ACCESS EXCLUSIVE MODE")


def _version_table(schema: str | None) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {name_in(VERSION_TABLE, schema)} (version_num varchar(32) NOT NULL, "
        f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
    )


def _create(connection: Connection, ddl: str) -> None:
    from sqlalchemy.exc import DBAPIError

    # IF NOT EXISTS still collides in the catalogue when two processes create at the same instant: then it exists.
    try:
        run(connection, ddl)
        connection.commit()
    except DBAPIError as e:
        connection.rollback()
        if not isinstance(e.orig, pg.UniqueViolation | pg.DuplicateTable | pg.DuplicateObject):
            raise


def _todo(connection: Connection, schema: str | None) -> tuple[str, ...]:
    """The revisions still to run; SchemaError if the database is newer than this TaskLib, or made by 0.1.0."""
    revision = _revision(connection, schema)
    if revision is not None and revision not in known():
        require_current(revision, schema)
    return missing_after(revision)


def _revision(connection: Connection, schema: str | None) -> str | None:
    """The revision of the schema; SchemaError if it has a table `tasks` that TaskLib did not create."""
    # In this order: our `tasks` never comes before its revision, so the one that another process is creating just now
    # can't look foreign.
    has_tasks = exists(connection, "SELECT to_regclass(%(name)s)", name=name_in("tasks", schema))
    revision = None
    versions = name_in(VERSION_TABLE, schema)
    if exists(connection, "SELECT to_regclass(%(name)s)", name=versions):
        revision = run(connection, f"SELECT max(version_num) FROM {versions}")
    if has_tasks and revision is None:
        where = f"schema {schema}" if schema else "the search_path"
        raise SchemaError(
            f"a table named tasks that TaskLib did not create is already in {where}. It was not touched. "
            "Give TaskLib a schema of its own: schema='tasklib' in Config, TASKLIB_SCHEMA=tasklib, "
            f"or tasklib migrate --schema tasklib{older_table.hint(connection, name_in('tasks', schema), schema)}"
        )
    return revision


def _explained(error: DBAPIError, schema: str | None) -> Exception:
    """What stops a migration, and who can help."""
    where = f"schema {schema}" if schema else "the search_path"
    reason = error.orig.diag.message_primary if isinstance(error.orig, psycopg.Error) else str(error.orig)
    if isinstance(error.orig, pg.InsufficientPrivilege):
        return SchemaError(
            f"this user may not create TaskLib's tables in {where}: {reason}. "
            "Have an administrator grant CREATE on it, or run the script of: tasklib migrate --sql"
        )
    if isinstance(error.orig, pg.InvalidSchemaName):
        return SchemaError(
            f"there is no schema in the search_path to create TaskLib's tables in: {reason}. "
            "Name one: schema='tasklib' in Config, TASKLIB_SCHEMA=tasklib, or tasklib migrate --schema tasklib"
        )
    if isinstance(error.orig, pg.DependentObjectsStillExist):
        return SchemaError(
            f"objects that are not TaskLib's depend on its old tables: {error.orig.diag.message_detail}. "
            "Nothing was changed. Drop them, run this again, and create them again"
        )
    if isinstance(error.orig, pg.CheckViolation | pg.NotNullViolation | pg.InvalidTextRepresentation):
        return SchemaError(f"a row can't be a task of TaskLib: {reason}. Nothing was changed.")
    return error

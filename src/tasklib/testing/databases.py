"""Databases for tests: a server, a migrated template on it, and a copy of that for each test.

with server() as url, template(url) as migrated, database(url, migrated) as fresh:
    tasklib.init(fresh)
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from tasklib.config import Config
from tasklib.db.connect import address, connect
from tasklib.errors import TaskLibError

SERVER_VARIABLE = "TASKLIB_TEST_DATABASE_URL"
TEMPLATE_VARIABLE = "TASKLIB_TEST_TEMPLATE"
"""The database on that server that empty ones are copied from, such as one with extensions; else `template1`."""


@contextmanager
def server() -> Iterator[str]:
    """The URL of a server on which tests may create databases: TASKLIB_TEST_DATABASE_URL, or an embedded one."""
    if given := os.environ.get(SERVER_VARIABLE):
        config = Config(given)
        connect(config).close()  # if it can't be reached, say so once and clearly
        yield config.database_url
        return
    from tasklib.embedded import EmbeddedPostgres, EmbeddedPostgresError

    with ExitStack() as stack:
        try:
            embedded = stack.enter_context(EmbeddedPostgres())
        except EmbeddedPostgresError as e:
            raise TaskLibError(
                f"there is no PostgreSQL to test on. Set {SERVER_VARIABLE}=postgresql://user@host/db to a server where "
                f"that user may create databases, or fix the embedded one: {e}"
            ) from e
        yield embedded.url()


@contextmanager
def template(server_url: str, **settings: Any) -> Iterator[str]:
    """The name of a migrated database to copy. `settings` are fields of Config that matter to it: `schema`."""
    from tasklib.migrations import migrate

    name = new_name("template")
    with _existing(server_url, name):
        migrate(Config(with_database(server_url, name), **settings))
        if os.environ.get(TEMPLATE_VARIABLE):
            close(server_url, name)
        yield name


@contextmanager
def database(server_url: str, copied_from: str | None = None) -> Iterator[str]:
    """The URL of a database of one's own: a copy of a template, or empty. It is dropped afterwards."""
    name = new_name("test")
    with _existing(server_url, name, copied_from):
        yield with_database(server_url, name)


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return make_conninfo(url, dbname=name)
    where, question, parameters = rest.partition("?")
    return f"{scheme}://{where.partition('/')[0]}/{name}{question}{parameters}"


@contextmanager
def _existing(server_url: str, name: str, copied_from: str | None = None) -> Iterator[None]:
    create(server_url, name, copied_from)
    try:
        yield
    finally:
        # By force: a test may leave connections behind, and the next one must not pay for it.
        _execute(server_url, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def create(server_url: str, name: str, copied_from: str | None = None) -> None:
    """Create a database: a copy of a template, or empty."""
    copied_from = copied_from or os.environ.get(TEMPLATE_VARIABLE)
    create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    if copied_from is not None:
        create += sql.SQL(" TEMPLATE {}").format(sql.Identifier(copied_from))
        if _version(server_url) >= 150_000:
            # The default writes every page of the copy to the write-ahead log: half as slow again for so small a one.
            create += sql.SQL(" STRATEGY file_copy")
    try:
        _execute(server_url, create)
    except errors.InsufficientPrivilege as e:
        raise TaskLibError(
            f"{address(server_url)} is not allowed to create databases, and each test gets its own. "
            f"Use another user in {SERVER_VARIABLE}, or let this one: ALTER ROLE ... CREATEDB."
        ) from e


def close(server_url: str, name: str) -> None:
    """Let no one in: a process that an extension keeps in each database, as Citus does, would prevent copies."""
    _execute(server_url, sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(name)))
    ending = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = {}"
    _execute(server_url, sql.SQL(ending).format(sql.Literal(name)))


def _execute(server_url: str, statement: sql.Composed) -> None:
    # Without a limit on the statement: on a busy machine the files of a database take a while.
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(statement)


@cache
def _version(server_url: str) -> int:
    with connect(Config(server_url)) as connection:
        return connection.info.server_version


def new_name(purpose: str) -> str:
    """A name that no database has."""
    return f"tasklib_{purpose}_{uuid.uuid4().hex[:10]}"

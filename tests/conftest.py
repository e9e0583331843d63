"""A real PostgreSQL for every test: the embedded one, or TASKLIB_TEST_DATABASE_URL."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import tasklib
from tasklib import Config
from tasklib.migrations import migrate
from tasklib.tasks import registry

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """A server on which tests may create databases."""
    if given := os.environ.get("TASKLIB_TEST_DATABASE_URL"):
        yield given
        return
    from tasklib.embedded import EmbeddedPostgres

    with EmbeddedPostgres() as server:
        yield server.url()


@pytest.fixture(scope="session")
def template_database(server_url: str) -> Iterator[str]:
    """A migrated database that tests copy: quicker than migrating each."""
    name = f"tasklib_template_{uuid.uuid4().hex[:10]}"
    _admin(server_url, f'CREATE DATABASE "{name}"')
    migrate(Config(_with_database(server_url, name)))
    yield name
    _admin(server_url, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def database_url(server_url: str, template_database: str) -> Iterator[str]:
    """A fresh, migrated database of this test's own."""
    name = f"tasklib_test_{uuid.uuid4().hex[:10]}"
    _admin(server_url, f'CREATE DATABASE "{name}" TEMPLATE "{template_database}"')
    yield _with_database(server_url, name)
    _admin(server_url, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def empty_database_url(server_url: str) -> Iterator[str]:
    """A fresh database without our tables."""
    name = f"tasklib_test_{uuid.uuid4().hex[:10]}"
    _admin(server_url, f'CREATE DATABASE "{name}"')
    yield _with_database(server_url, name)
    _admin(server_url, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def config(database_url: str) -> Config:
    return Config(database_url, retry_jitter=0.0)


@pytest.fixture
def db(database_url: str) -> Iterator[psycopg.Connection]:
    """A plain autocommit connection to look at the table with."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(autouse=True)
def _clean_slate() -> Iterator[None]:
    """No test leaves task functions or a default client behind."""
    with registry.isolated():
        yield
    tasklib.close()


def _admin(server_url: str, statement: str) -> None:
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[call-overload]


def _with_database(url: str, name: str) -> str:
    parts = conninfo_to_dict(url)
    if "://" in url and "?" not in url:
        return f"{url.rpartition('/')[0]}/{name}" if url.count("/") >= 3 else f"{url}/{name}"
    return make_conninfo("", **{**parts, "dbname": name})

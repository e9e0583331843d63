"""A real PostgreSQL for every test: the embedded one, or TASKLIB_TEST_DATABASE_URL."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import tasklib
from tasklib import Config
from tasklib.tasks import registry
from tasklib.testing import databases

pytest_plugins = ["pytester"]

_with_database = databases.with_database  # other conftest files import it under this name


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """A server on which tests may create databases."""
    with databases.server() as url:
        yield url


@pytest.fixture(scope="session")
def template_database(server_url: str) -> Iterator[str]:
    """A migrated database that tests copy: quicker than migrating each."""
    with databases.template(server_url) as name:
        yield name


@pytest.fixture
def database_url(server_url: str, template_database: str) -> Iterator[str]:
    """A fresh, migrated database of this test's own."""
    with databases.database(server_url, template_database) as url:
        yield url


@pytest.fixture
def empty_database_url(server_url: str) -> Iterator[str]:
    """A fresh database without our tables."""
    with databases.database(server_url) as url:
        yield url


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

"""A real PostgreSQL for every test: the embedded one, or TASKLIB_TEST_DATABASE_URL."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

import tasklib
from tasklib import Config
from tasklib.tasks import hooks, limits, registry
from tasklib.testing import databases
from tasklib.testing.reused_databases import ReusedDatabases
from tests.distributed_schemas import CLUSTER, DistributedSchemas

pytest_plugins = ["pytester", "tests.over_shards"]

# The same examples in every run, however slow the machine. `pytest --hypothesis-profile=default` searches for new ones.
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("repeatable")

# A shell starts background jobs with SIGINT ignored, and the programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_with_database = databases.with_database  # other conftest files import it under this name


_for_all_workers = ExitStack()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """One server for all processes of pytest-xdist: the first to start pays for it."""
    if not hasattr(node.config, "tasklib_server_url"):
        node.config.tasklib_server_url = _for_all_workers.enter_context(databases.server())
    node.workerinput["server_url"] = node.config.tasklib_server_url


def pytest_unconfigure() -> None:
    _for_all_workers.close()


@pytest.fixture(scope="session")
def server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server on which tests may create databases."""
    if shared := getattr(request.config, "workerinput", {}).get("server_url"):
        yield shared
        return
    with databases.server() as url:
        yield url


@pytest.fixture(scope="session")
def _distributed_schemas() -> Iterator[DistributedSchemas]:
    assert CLUSTER is not None
    with closing(DistributedSchemas(CLUSTER)) as schemas:
        yield schemas


@pytest.fixture(scope="session")
def template_database(server_url: str) -> Iterator[str]:
    """A migrated database that tests copy: quicker than migrating each."""
    with databases.template(server_url) as name:
        yield name


@pytest.fixture(scope="session")
def _reused_databases(server_url: str, template_database: str) -> Iterator[ReusedDatabases]:
    with closing(ReusedDatabases(server_url, template_database)) as reused:
        yield reused


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A migrated database of this test's own, with nothing in it; or a schema that Citus distributes."""
    lender = request.getfixturevalue("_distributed_schemas" if CLUSTER else "_reused_databases")
    with lender.lend() as url:
        yield url


@pytest.fixture
def empty_database_url(server_url: str) -> Iterator[str]:
    """A fresh database without our tables."""
    with databases.database(server_url) as url:
        yield url


@pytest.fixture
def config(request: pytest.FixtureRequest) -> Config:
    """One database; with `--over-shards` four shards on two servers."""
    if request.config.getoption("over_shards"):
        return Config(shards=request.getfixturevalue("four_shards"), retry_jitter=0.0)
    return Config(request.getfixturevalue("database_url"), retry_jitter=0.0)


@pytest.fixture
def db(database_url: str) -> Iterator[psycopg.Connection]:
    """A plain autocommit connection to look at the table with."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(autouse=True)
def _clean_slate() -> Iterator[None]:
    """No test leaves task functions, hooks, declared queues, a default client or ignored signals behind."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with registry.isolated(), hooks.isolated(), limits.isolated():
        yield
    tasklib.close()
    for number, handler in handlers.items():
        # A demo ignores SIGTERM while it clears up; workers that later tests start would inherit that, and never end.
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)

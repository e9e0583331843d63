"""Four shards: two schemas in each of two databases, migrated once and copied for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tasklib import Client, Config, Shard
from tasklib.migrations import migrate
from tasklib.testing import databases
from tasklib.testing.databases import with_database
from tasklib.testing.reused_databases import ReusedDatabases

PLACES = ((0, 0, "one"), (1, 0, "two"), (2, 1, "one"), (3, 1, "two"))
"""The number, the database and the schema of each shard."""
GONE = "postgresql://nobody@127.0.0.1:1/gone"
"""Nothing listens there."""


@pytest.fixture(scope="session")
def _reused(server_url: str) -> Iterator[tuple[ReusedDatabases, ...]]:
    with ExitStack() as stack:
        names = [stack.enter_context(databases.template(server_url, schema="one", shard=n)) for n in (0, 2)]
        for number, database, schema in PLACES:
            migrate(Config(with_database(server_url, names[database]), schema=schema, shard=number))
        yield tuple(stack.enter_context(closing(ReusedDatabases(server_url, name))) for name in names)


@pytest.fixture
def shards(_reused: tuple[ReusedDatabases, ...]) -> Iterator[tuple[Shard, ...]]:
    with ExitStack() as stack:
        urls = [stack.enter_context(reused.lend()) for reused in _reused]
        yield tuple(Shard(number, urls[database], schema) for number, database, schema in PLACES)


@pytest.fixture
def config(shards: tuple[Shard, ...]) -> Config:
    return Config(shards=shards, retry_jitter=0.0)


@pytest.fixture
def client(config: Config) -> Iterator[Client]:
    with Client(config) as client:
        yield client


def without(config: Config, *numbers: int) -> Config:
    """The same while these shards can't be reached."""
    shards = [Shard(s.number, GONE, f"s{s.number}", s.weight) if s.number in numbers else s for s in config.shards]
    return config.with_changes(shards=tuple(shards), database_url="", schema=None)

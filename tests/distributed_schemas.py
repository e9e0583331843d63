"""Schemas of a Citus cluster for tests, one at a time each: used again once they are empty.

TASKLIB_CITUS_URL=postgresql://postgres@coordinator/db make test-citus

TASKLIB_CITUS_CONNECT says where tests connect: `node`, which has the schema's shards (the default), or `coordinator`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tasklib import Config
from tasklib.migrations import migrate
from tasklib.testing.databases import new_name

URL_VARIABLE = "TASKLIB_CITUS_URL"
CONNECT_VARIABLE = "TASKLIB_CITUS_CONNECT"
CLUSTER = os.environ.get(URL_VARIABLE)
THROUGH_COORDINATOR = os.environ.get(CONNECT_VARIABLE) == "coordinator"

_NODE = """
    SELECT nodename, nodeport
    FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
    WHERE logicalrelid = %s::regclass"""
_TABLES = (
    "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r' AND relname !~ '_[0-9]+$'"
)
# What migrations leave, and how.
_FIRST_ROWS = {"settings": "INSERT INTO {} (one) VALUES (true)"}
_KEPT = {"tasklib_version"}


def create(coordinator: str) -> str:
    """The name of a new distributed schema without tables."""
    name = new_name("test")
    with psycopg.connect(coordinator, autocommit=True) as connection:
        connection.execute("SET citus.enable_schema_based_sharding = on")
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    return name


def drop(coordinator: str, name: str) -> None:
    with psycopg.connect(coordinator, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def node_of(coordinator: str, name: str) -> str:
    """The address of the node that has the shards of a schema with our tables."""
    with psycopg.connect(coordinator, autocommit=True) as connection:
        found = connection.execute(_NODE, [f'"{name}".tasks']).fetchone()
    assert found is not None
    return make_conninfo(coordinator, host=found[0], port=found[1])


def within(url: str, name: str) -> str:
    """The same address, with this schema as its search_path."""
    parts = conninfo_to_dict(url)
    where = f"{parts['host']}:{parts['port']}/{parts['dbname']}"
    return f"postgresql://{parts['user']}@{where}?options=-csearch_path%3D{name}"


class DistributedSchemas:
    """Migrated schemas, for one test after the other."""

    def __init__(self, coordinator: str) -> None:
        self._coordinator = coordinator
        self._free: list[str] = []

    @contextmanager
    def lend(self) -> Iterator[str]:
        """The URL of a schema with our tables, and nothing in them."""
        name = self._free.pop() if self._free else self._made()
        place = self._coordinator if THROUGH_COORDINATOR else node_of(self._coordinator, name)
        yield within(place, name)
        self._empty(name)
        self._free.append(name)

    def close(self) -> None:
        for name in self._free:
            drop(self._coordinator, name)

    def _made(self) -> str:
        name = create(self._coordinator)
        migrate(Config(self._coordinator, schema=name))
        return name

    def _empty(self, name: str) -> None:
        with psycopg.connect(node_of(self._coordinator, name), autocommit=True) as connection:
            # Without triggers, for the audit refuses to be emptied; and TRUNCATE is a trigger on Citus.
            connection.execute("SET session_replication_role = replica")
            for (table,) in connection.execute(_TABLES, [name]).fetchall():
                if table in _KEPT:
                    continue
                place = sql.SQL("{}.{}").format(sql.Identifier(name), sql.Identifier(table))
                connection.execute(sql.SQL("DELETE FROM {}").format(place))
                if first := _FIRST_ROWS.get(table):
                    connection.execute(sql.SQL(first).format(place))

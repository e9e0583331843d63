"""Where growth and profile are measured: a database of their own with TaskLib's tables, and rows by the million."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.peers.lab import Lab, default_directory
from benchmarks.peers.server import Server, own_server
from tasklib import Config
from tasklib.bench.cpu import postmaster_of
from tasklib.db.connect import connect
from tasklib.migrations import migrate

NAME = "work"
"""The name of every task that is made here."""


@dataclass
class BenchSchema:
    """TaskLib's tables, and a connection that fills them."""

    server: Server
    config: Config
    db: psycopg.Connection
    postmaster: int | None
    """The server's main process, where it can be seen from here."""
    rows: int = 0

    def clear(self) -> None:
        """Empty the table and vacuum it here: an autovacuum must not fall into one measurement of many."""
        self.db.execute("TRUNCATE tasks")
        self.db.execute("ALTER TABLE tasks DISABLE TRIGGER USER")
        self.db.execute("ALTER TABLE tasks SET (autovacuum_enabled = off)")

    def insert(self, count: int, columns: Mapping[str, str], parameters: Mapping[str, Any] | None = None) -> None:
        """So many rows; the values are SQL expressions of `n`, their number. Ids grow with it, as real ones do."""
        given = {"id": "(lpad(to_hex(1700000000000 + n), 12, '0') || '70008000000000000000')::uuid"}
        given |= {"name": f"'{NAME}'", "scheduled_at": "clock_timestamp()", **columns}
        numbers = f"generate_series({self.rows + 1}::bigint, {self.rows + count}) AS n"
        values = f"SELECT {', '.join(given.values())} FROM {numbers}"
        self.db.execute(f"INSERT INTO tasks ({', '.join(given)}) {values}".encode(), parameters or None)
        self.rows += count

    def calm(self) -> None:
        """Have done now what the server would otherwise do in the middle of a measurement."""
        self.db.execute("VACUUM ANALYZE tasks")
        self.server.checkpoint()

    def value(self, query: str) -> Any:
        row = self.db.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


def add_server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--database-url", help="a server to create a database on, instead of one in the lab")
    parser.add_argument("--postgres-bin", type=Path, help="the programs of the PostgreSQL to start in the lab")
    parser.add_argument("--lab", type=Path, default=default_directory(), help="where the server's data is")


@contextmanager
def chosen_schema(arguments: argparse.Namespace, name: str) -> Iterator[BenchSchema]:
    """On the server that the options name, or one of our own."""
    with ExitStack() as stack:
        if arguments.database_url:
            server = Server(arguments.database_url)
        else:
            arguments.lab.mkdir(parents=True, exist_ok=True)
            server = stack.enter_context(own_server(Lab(arguments.lab), arguments.postgres_bin))
        yield stack.enter_context(schema_on(server, name))


@contextmanager
def schema_on(server: Server, name: str) -> Iterator[BenchSchema]:
    """A database of this name, dropped afterwards."""
    server.create(name)
    config = Config(server.database_url(name))
    try:
        migrate(config)
        with connect(config, role="bench") as db:
            yield BenchSchema(server, config, db, postmaster_of(db))
    finally:
        server.drop(name)

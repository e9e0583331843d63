"""The one PostgreSQL that all systems run on, and the Redis for those that need it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import errors, sql

from benchmarks.peers.lab import Lab
from tasklib.embedded import EmbeddedPostgres
from tasklib.testing.databases import with_database

SETTINGS = {
    "shared_buffers": "1GB",
    "synchronous_commit": "on",
    "fsync": "on",
    "full_page_writes": "on",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "wal_buffers": "16MB",
    "max_connections": "200",
    "work_mem": "16MB",
    "maintenance_work_mem": "256MB",
    "effective_cache_size": "12GB",
    "random_page_cost": "1.1",
    "autovacuum": "on",
    "log_min_messages": "error",
}
"""As durable as PostgreSQL comes; only memory, and checkpoints rare enough not to fall into one system's turn."""


@dataclass
class Server:
    """A PostgreSQL on which databases may be created and dropped."""

    url: str
    postmaster: int | None = None
    """None where the server is not ours to look at: then its CPU seconds are unknown."""

    prefix: str = "tasklib_bench"
    notes: list[str] = field(default_factory=list)
    """What could not be done as it should, for the record."""

    templates: set[str] = field(default_factory=set)
    """Databases with tables in them that the next measurement can copy."""

    def database_url(self, name: str) -> str:
        return with_database(self.url, f"{self.prefix}_{name}")

    def create(self, name: str, template: str | None = None) -> None:
        """A new database of this name, in place of any old one."""
        self.drop(name)
        statement = sql.SQL("CREATE DATABASE {}").format(self._identifier(name))
        if template is not None:
            # By files: a million rows are there in a second, and not in the WAL of the run.
            statement += sql.SQL(" TEMPLATE {} STRATEGY FILE_COPY").format(self._identifier(template))
        self._execute(statement)

    def drop(self, name: str) -> None:
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(self._identifier(name)))

    def drop_templates(self) -> None:
        while self.templates:
            self.drop(self.templates.pop())

    def checkpoint(self) -> None:
        """So that no system pays for pages that another has written."""
        try:
            self._execute(sql.SQL("CHECKPOINT"))
        except errors.InsufficientPrivilege:
            note = "no CHECKPOINT between the runs: the user may not"
            if note not in self.notes:
                self.notes.append(note)

    def settings(self) -> dict[str, str]:
        """What the server says it runs with."""
        with psycopg.connect(self.url) as connection:
            names = ["server_version", *SETTINGS]
            rows = connection.execute(
                "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)", [names]
            ).fetchall()
        return dict(rows)

    def _identifier(self, name: str) -> sql.Identifier:
        return sql.Identifier(f"{self.prefix}_{name}")

    def _execute(self, statement: sql.SQL | sql.Composed) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def own_server(lab: Lab, bin_dir: Path | None) -> Iterator[Server]:
    """A server in the lab: from the given programs, else the system's, else the embedded ones."""
    bin_dir = bin_dir or system_bin_dir()
    kind = bin_dir.parent.name if bin_dir else "embedded"
    with EmbeddedPostgres(lab.directory / f"postgres-{kind}", bin_dir=bin_dir, settings=SETTINGS) as postgres:
        yield Server(postgres.url(), postgres.postmaster_pid)


def system_bin_dir() -> Path | None:
    """The newest PostgreSQL server that the system's packages have installed."""
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda found: float(found.parent.name))
    candidates = [*reversed(packaged), Path(shutil.which("initdb") or "/nowhere").resolve().parent]
    return next((found for found in candidates if (found / "initdb").is_file()), None)


@dataclass(frozen=True)
class Redis:
    """A Redis without persistence: what it holds doesn't survive it, unlike what PostgreSQL holds."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def ask(self, command: str) -> str:
        """The answer to a command, as text; empty if there is none."""
        words = ["redis-cli", "-p", str(self.port), *command.split()]
        return subprocess.run(words, capture_output=True, text=True).stdout.strip()


@contextmanager
def own_redis(lab: Lab) -> Iterator[Redis | None]:
    """A Redis in the lab, or None if it isn't installed."""
    if not (shutil.which("redis-server") and shutil.which("redis-cli")):
        yield None
        return
    port = _free_port()
    where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(lab.directory)]
    command = ["redis-server", *where, "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    redis = Redis(port, process.pid)
    try:
        deadline = time.monotonic() + 10
        while redis.ask("ping") != "PONG":
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"redis-server did not start on port {port}")
            time.sleep(0.05)
        yield redis
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port

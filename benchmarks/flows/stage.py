"""Where the measurements take place: a database of their own, workers as processes, marks of what ran when."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.flows.marks import MARK
from benchmarks.peers.lab import ROOT, Lab
from benchmarks.peers.server import Server
from tasklib import Client, Config
from tasklib.bench.cpu import seconds_of_trees
from tasklib.migrations import migrate

WAIT_SECONDS = 1800.0
CONCURRENCY = 500


@dataclass
class Stage:
    """One PostgreSQL, one directory for marks."""

    server: Server
    lab: Lab

    @property
    def marks(self) -> str:
        return str(self.lab.run_dir / "marks")

    def fresh(self, name: str) -> Config:
        """A new database with TaskLib's tables."""
        self.lab.run_dir.mkdir(parents=True, exist_ok=True)
        for old in self.lab.run_dir.glob("marks.*"):
            old.unlink()
        self.server.create(f"flows_{name}")
        config = Config(self.server.database_url(f"flows_{name}"))
        migrate(config)
        return config

    def environment(self, config: Config | None = None, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TASKLIB_")}
        url = {} if config is None else {"TASKLIB_DATABASE_URL": config.database_url}
        return kept | {"FLOWS_MARKS": self.marks, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"} | url | more

    @contextmanager
    def workers(self, config: Config, number: int = 1) -> Iterator[list[int]]:
        """Workers that serve these functions: their process ids."""
        options = ["--quiet", "--concurrency", str(CONCURRENCY)]
        command = [sys.executable, "-m", "tasklib", "worker", "benchmarks.flows.tasks", *options]
        with running([command] * number, self.environment(config)) as pids:
            with psycopg.connect(config.database_url, autocommit=True) as db:
                until(lambda: value(db, "SELECT count(*) FROM workers WHERE status <> 'dead'") >= number)
            yield pids

    def cpu(self, workers: Sequence[int]) -> float:
        """CPU seconds of server and workers so far."""
        assert self.server.postmaster is not None
        return seconds_of_trees([self.server.postmaster, *workers])

    def marked(self, what: str) -> Path:
        return Path(f"{self.marks}.{what}")

    def await_marks(self, what: str, count: int) -> None:
        path = self.marked(what)
        until(lambda: path.exists() and path.stat().st_size >= count * MARK.size)


@contextmanager
def running(
    commands: Sequence[Sequence[str]], environment: Mapping[str, str], cwd: Path | None = None
) -> Iterator[list[int]]:
    """Processes while the block runs."""
    started = [subprocess.Popen(c, env=environment, cwd=cwd, stdout=subprocess.DEVNULL) for c in commands]
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def held_back(client: Client) -> Callable[[], object]:
    """Nothing is claimed until the returned function is called: so workers have started before the clock does."""
    client.pause(queue="default")
    return lambda: client.resume(queue="default")


def until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError("it takes too long")
        time.sleep(0.1)


def value(db: psycopg.Connection, query: str) -> Any:
    row = db.execute(query.encode()).fetchone()
    return row and row[0]

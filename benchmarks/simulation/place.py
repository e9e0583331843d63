"""The server on which the model is checked, and the shards on it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.simulation.measuring import SETTINGS
from benchmarks.simulation.producers import run_producers
from benchmarks.simulation.workers import work
from tasklib import Client, Config, Shard
from tasklib.bench.cpu import seconds_of_trees
from tasklib.embedded import EmbeddedPostgres
from tasklib.migrations import migrate

SHARDS = (1, 2, 4)
Figures = dict[str, float]


@dataclass(frozen=True)
class Place:
    """The server, and the shards on it."""

    postgres: EmbeddedPostgres
    url: str
    configs: Sequence[Config]
    directory: Path

    def cpu(self) -> float:
        assert self.postgres.postmaster_pid is not None
        return seconds_of_trees([self.postgres.postmaster_pid])

    def over(self, shards: int) -> Config:
        """The configuration of a worker over so many."""
        file = self.directory / f"{shards}.toml"
        entry = '[[shard]]\nnumber = {}\ndatabase_url = "{}"\nschema = "shard_{}"\n'
        file.write_text("".join(entry.format(n, self.url, n) for n in range(shards)))
        return Config(shards_file=str(file), max_prefetch=0)

    def fill(self, shards: int, tasks: int) -> None:
        self.clear()
        for config in self.configs[:shards]:
            with Client(config) as client:
                client.submit_many(work, [{"n": n} for n in range(tasks // shards)])

    def clear(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            for number in range(max(SHARDS)):
                db.execute(f"TRUNCATE shard_{number}.tasks, shard_{number}.stats_deltas CASCADE".encode())
                db.execute(f"DELETE FROM shard_{number}.worker_registrations".encode())
                db.execute(f"DELETE FROM shard_{number}.leadership".encode())
            db.execute("CHECKPOINT")

    def clear_tasks(self) -> None:
        """Forget what was done so far."""
        with psycopg.connect(self.url, autocommit=True) as db:
            for number in range(max(SHARDS)):
                db.execute(f"DELETE FROM shard_{number}.tasks".encode())

    def producers(self, *, sleeps: bool) -> Figures:
        self.clear()
        return run_producers(self.configs[0], self.url, sleeps=sleeps)

    def connections(self) -> int:
        """Those of TaskLib, of all kinds."""
        with psycopg.connect(self.url) as db:
            row = db.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tasklib%'").fetchone()
            assert row is not None
            return int(row[0])


@contextmanager
def place() -> Iterator[Place]:
    with EmbeddedPostgres(settings=SETTINGS) as postgres, tempfile.TemporaryDirectory() as directory:
        url = postgres.create_database("simulation")
        shards = [Shard(number, url, f"shard_{number}") for number in range(max(SHARDS))]
        configs = [Config(shards=(shard,)).for_shard(shard.number) for shard in shards]
        for config in configs:
            migrate(config)
        yield Place(postgres, url, configs, Path(directory))

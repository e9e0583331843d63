"""A system on stage: its database made afresh, its adapter called, its workers started, what it did counted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.peers.lab import ADAPTERS, Lab
from benchmarks.peers.server import Redis, Server
from benchmarks.peers.systems import System
from tasklib.bench.cpu import seconds_of_trees

SETUP_SECONDS = 120.0
SUBMIT_SECONDS = 600.0


class MeasurementFailed(Exception):
    """A system didn't do what was asked; the message has the end of its log."""


@dataclass(frozen=True)
class History:
    """Rows that are there before a drain begins."""

    finished: int
    future: int


@dataclass
class Stage:
    """One system on one server."""

    system: System
    lab: Lab
    server: Server
    redis: Redis | None = None

    @property
    def database(self) -> str:
        return self.system.name.replace("-", "_")

    @property
    def database_url(self) -> str:
        return self.server.database_url(self.database)

    @property
    def on_redis(self) -> bool:
        return self.system.broker == "redis"

    # -- before a measurement

    def make_fresh(self, history: History | None = None) -> None:
        """Empty tables, or such with a history; and nothing left of the run before."""
        shutil.rmtree(self.lab.run_dir, ignore_errors=True)
        self.lab.run_dir.mkdir(parents=True)
        if self.on_redis:
            assert self.redis is not None
            self.redis.ask("flushall")
            return
        template = f"{self.database}_{'prefilled' if history else 'template'}"
        if template not in self.server.templates:
            self._make_template(template, history)
        self.server.create(self.database, template)
        self.server.checkpoint()

    def _make_template(self, template: str, history: History | None) -> None:
        """Tables are made, and filled, once per series of runs; each measurement works on a copy."""
        self.server.create(template)
        self._call(self.server.database_url(template), "setup")
        if history:
            with psycopg.connect(self.server.database_url(template), autocommit=True) as connection:
                for statement in self.system.prefill:
                    connection.execute(statement.format(finished=history.finished, future=history.future))
                connection.execute("VACUUM ANALYZE")
        self.server.templates.add(template)

    def settle(self) -> None:
        """Statistics and checkpoint between submission and drain, for every system alike."""
        if not self.on_redis:
            with psycopg.connect(self.database_url, autocommit=True) as connection:
                connection.execute("ANALYZE")
            self.server.checkpoint()

    # -- calling the adapter

    def command(self, *arguments: object) -> list[str]:
        if self.system.language == "node":
            return ["node", str(ADAPTERS / self.system.adapter), *map(str, arguments)]
        python = self.lab.python(self.system.environment)
        return [str(python), str(ADAPTERS / self.system.adapter), *map(str, arguments)]

    def environment(self, database_url: str) -> dict[str, str]:
        return self.lab.process_environment() | {
            "BENCH_DATABASE_URL": database_url,
            "BENCH_REDIS_URL": self.redis.url if self.redis else "",
            "BENCH_RUN_DIR": str(self.lab.run_dir),
            "BENCH_LAB": str(self.lab.directory),
            "BENCH_OPTIONS": json.dumps(dict(self.system.options)),
        }

    def ping(self, count: int, gap: float) -> None:
        self._call(self.database_url, "ping", count, gap)

    def _call(self, database_url: str, *arguments: object) -> None:
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment(database_url),
            cwd=ADAPTERS,
            capture_output=True,
            text=True,
            timeout=SETUP_SECONDS,
        )
        if done.returncode != 0:
            raise MeasurementFailed(f"{arguments[0]} failed: {done.stdout[-300:]}{done.stderr[-1500:]}")

    def submit(self, kind: str, count: int, *, producers: int = 1, many: bool = False) -> float:
        """Submit, with producers that begin together; returns the seconds from the first begin to the last end."""
        started: list[subprocess.Popen[str]] = []
        try:
            for number in range(producers):
                share = count // producers + (number < count % producers)
                started.append(self._popen("submit-many" if many else "submit", kind, share))
            for producer in started:
                self._expect(producer, "READY")
            for producer in started:
                assert producer.stdin is not None
                producer.stdin.write("GO\n")
                producer.stdin.flush()
            spans = [json.loads(self._expect(producer, "RESULT ")) for producer in started]
        finally:
            stop(started)
        return float(max(span["ended"] for span in spans) - min(span["begun"] for span in spans))

    def _popen(self, *arguments: object) -> subprocess.Popen[str]:
        log = (self.lab.run_dir / "submit.log").open("ab")
        with log:
            return subprocess.Popen(
                self.command(*arguments),
                env=self.environment(self.database_url),
                cwd=ADAPTERS,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def _expect(self, process: subprocess.Popen[str], word: str) -> str:
        """The rest of the next line that begins with this word; libraries may print others."""
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(word):
                return line[len(word) :]
        raise MeasurementFailed(f"submission ended without {word.strip()}: {self.log('submit.log')}")

    @contextmanager
    def workers(self, count: int = 1) -> Iterator[list[subprocess.Popen[Any]]]:
        """Worker processes, killed at the end: how a system shuts down is not measured here."""
        started: list[subprocess.Popen[Any]] = []
        try:
            with (self.lab.run_dir / "worker.log").open("ab") as log:
                for _ in range(count):
                    started.append(
                        subprocess.Popen(
                            self.command("work"),
                            env=self.environment(self.database_url),
                            cwd=ADAPTERS,
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=log,
                            start_new_session=True,
                        )
                    )
            yield started
        finally:
            stop(started)

    # -- what it did

    def log(self, name: str) -> str:
        path = self.lab.run_dir / name
        return path.read_text(errors="replace")[-1500:] if path.exists() else ""

    def is_finished(self, connection: psycopg.Connection[Any] | None) -> bool:
        """True when the system's own records say that nothing is queued or running."""
        if self.on_redis:
            assert self.redis is not None
            return sum(int(self.redis.ask(command) or 0) for command in self.system.unfinished_keys) == 0
        assert connection is not None
        return not any(_value(connection, f"SELECT EXISTS (SELECT FROM {tail})") for tail in self.system.unfinished)

    def count_unfinished(self) -> int | None:
        """How many tasks are queued or running; None where that can't be told."""
        return self._count(*self.system.unfinished)

    def count_finished(self) -> int | None:
        """How many tasks are recorded as done; None where no trace is kept."""
        return self._count(*filter(None, [self.system.finished]))

    def _count(self, *tails: str) -> int | None:
        if self.on_redis or not tails:
            return None
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            return sum(int(_value(connection, f"SELECT count(*) FROM {tail}")) for tail in tails)

    def processor_seconds(self, workers: Sequence[subprocess.Popen[Any]]) -> tuple[float | None, float]:
        """CPU seconds so far, of the server (None if it isn't ours to look at) and of the workers."""
        server = self.redis.pid if self.on_redis and self.redis else self.server.postmaster
        of_server = None if server is None else seconds_of_trees([server])
        return of_server, seconds_of_trees(worker.pid for worker in workers)


def stop(processes: Sequence[subprocess.Popen[Any]]) -> None:
    """Kill processes with all they have started."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _value(connection: psycopg.Connection[Any], statement: str) -> Any:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return row[0]

"""Workers in processes of their own, to be killed and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

_PROGRAM = """
import json, sys
from tasklib import Config, Worker
from tasklib.config import Retention
from tasklib.maintenance import batches, dead_letters, idempotency, replays, retention
import tests.worker.fleet_tasks
settings = json.loads(sys.argv[1])
config = settings.pop("config")
config["retention"] = tuple(Retention(*rule) for rule in config.get("retention", ()))
if batch := settings.pop("batch", None):  # small ones, so that little work has a middle
    batches.FIRST = batches.MOST = batch
    for duty in (dead_letters, idempotency, replays, retention):
        duty.BATCH = batch
worker = Worker(Config(settings.pop("url"), **config), **settings)
worker.events.subscribe(lambda event: print(event, flush=True))
worker.run_sync()
"""
ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


class Fleet:
    """Starts worker processes on one database and knows how to wait for what they do to it."""

    def __init__(self, url: str, db: psycopg.Connection, logs: Path) -> None:
        self.url = url
        self.db = db
        self._logs = logs
        self._processes: list[subprocess.Popen[bytes]] = []
        db.execute("CREATE TABLE notes (task uuid, token bigint, pid int, what text, at timestamptz DEFAULT now())")

    def start(self, config: dict[str, Any] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """Start one more. Its name is what its id begins with, and what the database knows its sessions by."""
        name = f"worker-{len(self._processes)}"
        url = make_conninfo(self.url, application_name=name)
        settings = json.dumps({"url": url, "config": {"worker_id": name, **(config or {})}, **options})
        log = (self._logs / f"{name}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, settings],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "FLEET_URL": self.url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )
        self._processes.append(process)
        return process

    def named(self, name: str) -> subprocess.Popen[bytes]:
        return self._processes[int(name.removeprefix("worker-"))]

    @property
    def alive(self) -> list[int]:
        """The process ids of those that were not killed."""
        return [p.pid for p in self._processes if p.poll() is None]

    def said(self, process: subprocess.Popen[bytes]) -> str:
        return (self._logs / f"worker-{self._processes.index(process)}.log").read_text()

    def value(self, query: str, *parameters: object) -> Any:
        row = self.db.execute(query, parameters).fetchone()  # type: ignore[call-overload]
        return row and row[0]

    def wait(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(self.said(p)[-2000:] for p in self._processes)
                raise AssertionError(f"never happened: {what}\n{logs}")
            time.sleep(0.02)

    def wait_for_value(self, wanted: object, query: str, *parameters: object) -> None:
        self.wait(lambda: self.value(query, *parameters) == wanted, f"{query} = {wanted}")

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


@contextmanager
def fleet_of(url: str, db: psycopg.Connection, logs: Path) -> Iterator[Fleet]:
    fleet = Fleet(url, db, logs)
    try:
        yield fleet
    finally:
        fleet.end()

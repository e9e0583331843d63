"""Worker processes, started as users start them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tasklib.bench.schema import POLL_SECONDS, SCHEMA, BenchFailed, BenchSchema
from tasklib.config import Config

MODULE = "tasklib.bench.tasks"
START_SECONDS = 60
STOP_SECONDS = 10


@dataclass(frozen=True)
class BenchWorkers:
    """Workers at work."""

    processes: Sequence[subprocess.Popen[bytes]]
    schema: BenchSchema

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def look(self) -> None:
        """Raise if one of them has ended."""
        for process in self.processes:
            if process.poll() is not None:
                words = (self.schema.logs / "workers").read_text(errors="replace")[-2000:].strip()
                raise BenchFailed(
                    f"a worker ended unexpectedly, with code {process.returncode}. Its last output:\n{words}"
                )

    def await_registered(self) -> None:
        """Wait until each of them looks for tasks."""
        deadline = time.monotonic() + START_SECONDS
        while self.schema.row("SELECT count(*) FROM {workers} WHERE pid = ANY(%s)", self.pids)[0] < len(self.pids):
            self.look()
            if time.monotonic() > deadline:
                raise BenchFailed(f"the workers are not up after {START_SECONDS} seconds.")
            time.sleep(POLL_SECONDS)


@contextmanager
def start_workers(
    schema: BenchSchema, count: int, *, concurrency: int, server: str | None = None
) -> Iterator[BenchWorkers]:
    """So many worker processes, registered and at work until the block ends; through a server, if its URL is given."""
    command = [
        sys.executable,
        "-m",
        "tasklib.bench.child",
        "worker",
        MODULE,
        "--concurrency",
        str(concurrency),
        "--quiet",
        *(("--server", server) if server else ()),
    ]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with (schema.logs / "workers").open("ab") as log:
            for _ in range(count):
                processes.append(
                    subprocess.Popen(
                        command,
                        env=environment(None if server else schema.config),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                    )
                )
        workers_running = BenchWorkers(processes, schema)
        workers_running.await_registered()
        yield workers_running
    finally:
        stop(processes)


def environment(config: Config | None) -> dict[str, str]:
    """What a child process needs to know. The URL goes by the environment: the command line of a process is public."""
    if config is None:  # it has no database
        return {name: value for name, value in os.environ.items() if not name.startswith("TASKLIB_")}
    kept = {name: value for name, value in os.environ.items() if name != "TASKLIB_RETENTION"}
    return {**kept, "TASKLIB_DATABASE_URL": config.database_url, "TASKLIB_SCHEMA": SCHEMA}


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """SIGTERM, and SIGKILL for workers that are still running later."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

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

from tasklib.bench.ground import POLL_SECONDS, SCHEMA, BenchFailed, Ground
from tasklib.config import Config

MODULE = "tasklib.bench.tasks"
START_SECONDS = 60
STOP_SECONDS = 10


@dataclass(frozen=True)
class Crew:
    """Workers at work."""

    processes: Sequence[subprocess.Popen[bytes]]
    ground: Ground

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def look(self) -> None:
        """Raise if one of them has ended."""
        for process in self.processes:
            if process.poll() is not None:
                words = (self.ground.logs / "workers").read_text(errors="replace")[-2000:].strip()
                raise BenchFailed(f"a worker ended by itself, with code {process.returncode}. Its last words:\n{words}")

    def await_registered(self) -> None:
        """Wait until each of them looks for tasks."""
        deadline = time.monotonic() + START_SECONDS
        while self.ground.row("SELECT count(*) FROM {workers} WHERE pid = ANY(%s)", self.pids)[0] < len(self.pids):
            self.look()
            if time.monotonic() > deadline:
                raise BenchFailed(f"the workers are not up after {START_SECONDS} seconds.")
            time.sleep(POLL_SECONDS)


@contextmanager
def crew_of(ground: Ground, count: int, *, concurrency: int, server: str | None = None) -> Iterator[Crew]:
    """So many worker processes, registered and at work until the block ends; through a server, if its URL is given."""
    command = [
        sys.executable,
        "-m",
        "tasklib.bench.member",
        "worker",
        MODULE,
        "--concurrency",
        str(concurrency),
        "--quiet",
        *(("--server", server) if server else ()),
    ]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with (ground.logs / "workers").open("ab") as log:
            for _ in range(count):
                processes.append(
                    subprocess.Popen(
                        command,
                        env=environment(None if server else ground.config),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                    )
                )
        crew = Crew(processes, ground)
        crew.await_registered()
        yield crew
    finally:
        stop(processes)


def environment(config: Config | None) -> dict[str, str]:
    """What a child process needs to know. The URL goes by the environment: the command line of a process is public."""
    if config is None:  # it has no database
        return {name: value for name, value in os.environ.items() if not name.startswith("TASKLIB_")}
    kept = {name: value for name, value in os.environ.items() if name != "TASKLIB_RETENTION"}
    return {**kept, "TASKLIB_DATABASE_URL": config.database_url, "TASKLIB_SCHEMA": SCHEMA}


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """SIGTERM, and SIGKILL for whoever is still there later."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

"""What a worker's memory does over a million tasks, a tenth of them at a time: `python -m benchmarks.memory`.

python -m benchmarks.memory --write           # adds the figures to results/memory.jsonl
python -m benchmarks.memory --tasks 100000    # quick
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.peers.records import checked_out
from tasklib import Client, Config, task
from tasklib.embedded import EmbeddedPostgres
from tasklib.migrations import migrate

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "memory.jsonl"
PARTS = 10
LIMIT = 1.05
"""What it may have at the end, of what it had after the second part: by then everything has been used once."""


@task(name="memory.noop")
async def noop(n: int) -> dict[str, int]:
    return {"n": n}


@contextmanager
def worker(url: str, concurrency: int) -> Iterator[int]:
    """A worker as its users start one; its process id."""
    command = ["worker", "benchmarks.memory", "--quiet", "--concurrency", str(concurrency)]
    environment = {**os.environ, "TASKLIB_DATABASE_URL": url}
    process = subprocess.Popen([sys.executable, "-m", "tasklib", *command], cwd=ROOT, env=environment)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)


def megabytes(pid: int, what: str) -> float:
    """VmRSS or VmHWM of a process."""
    found = re.search(rf"^{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def drain(db: psycopg.Connection, client: Client, first: int, count: int) -> None:
    client.submit_many(noop, [{"n": n} for n in range(first, first + count)])
    left = "SELECT FROM tasks WHERE state IN ('pending', 'failed', 'running') LIMIT 1"
    while db.execute(left).fetchone() is not None:
        time.sleep(0.05)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tasks", type=int, default=1_000_000)
    options.add_argument("--concurrency", type=int, default=500)
    options.add_argument("--write", action="store_true", help=f"Add the figures to {RESULTS.name}.")
    given = options.parse_args()
    part = given.tasks // PARTS
    used = []
    with EmbeddedPostgres(settings={"max_wal_size": "4GB"}) as server:
        url = server.create_database("memory")
        migrate(Config(url))
        with psycopg.connect(url, autocommit=True) as db, Client(url) as client, worker(url, given.concurrency) as pid:
            for number in range(PARTS):
                drain(db, client, number * part, part)
                used.append(round(megabytes(pid, "VmRSS"), 1))
                print(f"{(number + 1) * part:>10,} tasks: {used[-1]:.1f} MB", flush=True)
            most = round(megabytes(pid, "VmHWM"), 1)
            [(done,)] = db.execute("SELECT count(*) FROM tasks WHERE state = 'completed'").fetchall()
    if done != PARTS * part:
        sys.exit(f"only {done:,} of {PARTS * part:,} tasks completed")
    record: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": checked_out(),
        "python": platform.python_version(),
        "tasks": done,
        "concurrency": given.concurrency,
        "megabytes": used,
        "most": most,
    }
    if given.write:
        with RESULTS.open("a") as file:
            file.write(json.dumps(record) + "\n")
    print(f"the most at any time: {most:.1f} MB; at the end {used[-1] / used[1]:.3f} x what it was after two parts")
    if used[-1] > LIMIT * used[1]:
        sys.exit(f"it grew by more than a factor of {LIMIT:g}")


if __name__ == "__main__":
    main()

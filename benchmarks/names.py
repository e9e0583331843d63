"""What the number of names costs: `python -m benchmarks.names`.

One worker, which serves just those names, drains 40,000 tasks that do nothing, of 1, 10, 100, 1,000 and 10,000 names in
turn, several times over. The figures are tasks per second of the clock, and per second of CPU (worker and server): the
second ones are comparable on a machine that does other things, too. `--write` adds them to results/names.jsonl.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from datetime import UTC, datetime
from typing import Any

import psycopg

from benchmarks.peers.records import RESULTS, append, checked_out
from tasklib import Config, Worker, task
from tasklib.bench.cpu import postmaster_of, seconds_of, seconds_of_trees
from tasklib.embedded import EmbeddedPostgres
from tasklib.migrations import migrate

MOST = 10_000
COUNTS = (1, 10, 100, 1_000, MOST)


async def noop() -> None: ...


def name_of(n: int) -> str:
    return f"names.of_some_module.{n:05}"


def register(count: int) -> None:
    for n in range(count):
        task(noop, name=name_of(n))


def drain(url: str, db: psycopg.Connection[Any], names: int, tasks: int) -> tuple[float, float]:
    """Tasks per second, and per second of CPU."""
    db.execute("TRUNCATE tasks")
    db.execute(
        "INSERT INTO tasks (name, kwargs) SELECT 'names.of_some_module.' || lpad((n * 7919 %% %s)::text, 5, '0'), '{}' "
        "FROM generate_series(1, %s) AS n",
        (names, tasks),
    )
    db.execute("VACUUM ANALYZE tasks")
    postmaster = postmaster_of(db)
    assert postmaster is not None

    def cpu() -> float:
        return seconds_of([os.getpid()]) + seconds_of_trees([postmaster])

    served = [name_of(n) for n in range(names)]
    worker = Worker(Config(url), names=served, concurrency=100, burst=True)
    began, used = time.monotonic(), cpu()
    asyncio.run(worker.run())
    took, used = time.monotonic() - began, cpu() - used
    left = db.execute("SELECT count(*) FROM tasks WHERE state <> 'completed'").fetchone()
    assert left == (0,), left
    return tasks / took, tasks / used


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tasks", type=int, default=40_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--names", default=",".join(map(str, COUNTS)))
    options.add_argument("--write", action="store_true", help="Add the figures to results/names.jsonl.")
    given = options.parse_args()
    counts = [int(count) for count in given.names.split(",")]
    register(max(counts))
    rates: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}
    with EmbeddedPostgres(settings={"max_wal_size": "4GB", "autovacuum": "off"}) as server:
        url = server.create_database("names")
        migrate(Config(url))
        with psycopg.connect(url, autocommit=True) as db:
            for round_ in range(given.rounds + 1):
                for count in counts:
                    found = drain(url, db, count, given.tasks)
                    if round_:  # the first one warms up
                        rates[count].append(found)
    middle = {count: [statistics.median(each) for each in zip(*rates[count], strict=True)] for count in counts}
    first = middle[counts[0]]
    for count, (clock, cpu) in middle.items():
        print(
            f"{count:6} names: {clock:8,.0f} tasks/s ({clock / first[0]:.2f}), "
            f"{cpu:8,.0f} per CPU second ({cpu / first[1]:.2f})"
        )
    if given.write:
        record = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": checked_out(),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "tasks": given.tasks,
            "rounds": given.rounds,
            "per_second": {count: round(clock) for count, (clock, _) in middle.items()},
            "per_cpu_second": {count: round(cpu) for count, (_, cpu) in middle.items()},
        }
        append(RESULTS / "names.jsonl", record)


if __name__ == "__main__":
    main()

"""What limits and shares cost, and whether they hold: `python -m benchmarks.limits`.

    python -m benchmarks.limits                     # a hundredth of the figures below
    python -m benchmarks.limits --scale 1           # all of them
    python -m benchmarks.limits --only tenants,rate

- tenants: how long a claim takes while 10,000 shares have due tasks.
- round: how many tasks of others begin before the first task of a tenant, beside one with 1,000,000 waiting tasks.
- freed: how soon a place of a full limit is used again while tasks wait, from the commit of one task's end to the claim
  of the next, with two workers.
- rate: 1,000,000 starts of a rate; no window of any length may have more than `burst + rate * w / per` of them, checked
  for every pair of starts.

Every run is appended to `benchmarks/results/limits.jsonl`. The drain over many names is `benchmarks.names`, submissions
beside many sleeping workers are `benchmarks.sleepers`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from tasklib import Config, Worker, task
from tasklib.db.connect import TASKS, conninfo
from tasklib.db.fast_path import exchange
from tasklib.db.query import Query
from tasklib.embedded import EmbeddedPostgres
from tasklib.migrations import migrate
from tasklib.store import settle
from tasklib.store.claim import Claimed, Served
from tasklib.store.limited_claim import Admitted, Turn, claim_limited
from tasklib.store.settle import Completion

T = TypeVar("T")
RESULTS = Path(__file__).parent / "results" / "limits.jsonl"
TERMS = {"lease_seconds": 600.0, "medium_after": 600.0, "high_after": 1200.0}
ME = "benchmark"
CLAIMS = 200


class Ground:
    """A database with TaskLib's tables, and a connection that claims there as a worker's does."""

    def __init__(self, url: str, db: psycopg.Connection[Any]) -> None:
        self.url, self.db = url, db
        self._connection = psycopg.connect(conninfo(Config(url), role=TASKS), autocommit=True)
        self._turn = Turn()

    def clear(self) -> None:
        for table in ("tasks", "places", "limit_states", "limits", "pauses"):
            self.db.execute(f"DELETE FROM {table}".encode())
        self.db.execute("TRUNCATE tasks")
        self._turn = Turn()

    def insert(self, number: int, lane: str) -> None:
        """Due tasks whose lane is an SQL expression of `n`."""
        self.db.execute(
            f"INSERT INTO tasks (name, lane) SELECT 'work', {lane} FROM generate_series(1, {number}) AS n".encode()
        )

    def calm(self) -> None:
        self.db.execute("VACUUM ANALYZE tasks")
        self.db.execute("CHECKPOINT")

    def claim(self, most: int) -> Admitted:
        found = self._run(claim_limited(Served(["work"]), most, ME, self._turn, **TERMS))
        self._turn = found.turn
        return found

    def complete(self, tasks: Sequence[Claimed]) -> None:
        if tasks:
            self._run(settle.complete([Completion(each, '{"value":null}') for each in tasks], ME))

    def _run(self, query: Query[T]) -> T:
        return self._connection.wait(exchange(self._connection, query, None))


def tenants(ground: Ground, scale: float) -> dict[str, Any]:
    """Milliseconds of a claim of ten tasks, with so many shares."""
    number = max(20, round(10_000 * scale))
    ground.insert(number * 3, rf"E'\x01s' || 'tenant' || n % {number}")
    ground.calm()
    took = []
    for _ in range(min(CLAIMS, number * 3 // 10)):
        began = time.perf_counter()
        found = ground.claim(10)
        took.append((time.perf_counter() - began) * 1000)
        assert len(found.tasks) == 10, len(found.tasks)
        ground.complete(found.tasks)
    return {"tenants": number, "claims": len(took), **spread(took, "ms")}


def round_(ground: Ground, scale: float) -> dict[str, Any]:
    """How many tasks of other shares are claimed, one by one, before the first of a new one."""
    backlog, others = max(1000, round(1_000_000 * scale)), 9
    ground.insert(backlog, r"E'\x01sbig'")
    ground.insert(others * 100, rf"E'\x01s' || 'other' || n % {others}")
    ground.calm()
    before = []
    for attempt in range(20):
        for _ in range(attempt):  # from anywhere in the round
            ground.complete(ground.claim(1).tasks)
        ground.insert(1, r"E'\x01snew'")
        count = 0
        while not (found := ground.claim(1).tasks) or found[0].lane_name != "\x01snew":
            ground.complete(found)
            count += 1
        ground.complete(found)
        before.append(count)
    return {"backlog": backlog, "shares": others + 2, "most_before": max(before), "one_round": others + 1}


def freed(ground: Ground, scale: float) -> dict[str, Any]:
    """Milliseconds from the end of one task to the start of the next behind a limit of one."""
    number = max(100, round(2000 * scale))
    ground.db.execute("INSERT INTO limits (name, max_running) VALUES ('one', 1)")
    ground.insert(number, r"E'\x01lone\x02'")

    @task(name="work")
    async def work() -> None:
        await asyncio.sleep(0.005)

    async def run() -> None:
        await asyncio.gather(*(Worker(Config(ground.url), burst=True, concurrency=4).run() for _ in range(2)))

    asyncio.run(run())
    rows = ground.db.execute(
        "SELECT extract(epoch FROM started_at - interval '100 microseconds' - ended) * 1000 FROM ("
        "SELECT started_at, lag(completed_at) OVER (ORDER BY started_at) AS ended FROM tasks "
        "WHERE state = 'completed') AS gap WHERE ended IS NOT NULL"
    ).fetchall()
    assert len(rows) == number - 1, len(rows)
    # Both are the beginnings of statements: a claim that began before the end was stored may have seen it.
    gaps = [max(0.0, float(row[0])) for row in rows]
    return {"tasks": number, **spread(gaps, "ms")}


def rate(ground: Ground, scale: float) -> dict[str, Any]:
    """Starts as fast as the rate allows, and the fullest window among them."""
    number, per_second, burst = max(2000, round(1_000_000 * scale)), 5_000, 100
    ground.db.execute("INSERT INTO limits (name, rate, per, burst) VALUES ('rate', %s, 1, %s)", (per_second, burst))
    ground.insert(number, r"E'\x01lrate\x02'")
    ground.calm()
    left, claims, began = number, 0, time.monotonic()
    while left:
        left -= len(found := ground.claim(1000).tasks)
        ground.complete(found)
        claims += 1
    took = time.monotonic() - began
    rows = ground.db.execute("SELECT (extract(epoch FROM started_at) * 1000000)::bigint FROM tasks ORDER BY 1")
    over = most_over([row[0] for row in rows], per_second)
    assert over <= burst, f"{over} starts over the rate in one window, and the burst is {burst}"
    return {
        "starts": number,
        "claims": claims,
        "rate": per_second,
        "burst": burst,
        "most_over_the_rate_in_any_window": round(over, 3),
        "seconds": round(took, 2),
    }


def most_over(starts: Sequence[int], per_second: int) -> float:
    """By how many starts the fullest window, of any length, is over what the rate alone allows.

    The window from start i to start j has j - i + 1 starts, and the rate allows (t_j - t_i) * rate. So the most is
    found with the smallest i - t_i * rate so far. Moments are in microseconds; a token may come one of them early.
    """
    smallest = most = None
    for number, at in enumerate(starts):
        level = number * 1_000_000 - at * per_second
        smallest = level if smallest is None else min(smallest, level)
        found = level - smallest + 1_000_000 - per_second
        most = found if most is None else max(most, found)
    return (most or 0) / 1_000_000


def spread(values: Sequence[float], unit: str) -> dict[str, float]:
    ordered = sorted(values)
    return {
        f"p50_{unit}": round(statistics.median(ordered), 3),
        f"p95_{unit}": round(ordered[int(len(ordered) * 0.95)], 3),
        f"most_{unit}": round(ordered[-1], 3),
    }


MEASURES: dict[str, Callable[[Ground, float], dict[str, Any]]] = {
    "tenants": tenants,
    "round": round_,
    "freed": freed,
    "rate": rate,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--scale", type=float, default=0.01, help="1: the figures above")
    options.add_argument("--only", default=",".join(MEASURES))
    given = options.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
    with EmbeddedPostgres(settings={"max_wal_size": "4GB"}) as server:
        url = server.create_database("limits")
        migrate(Config(url))
        with psycopg.connect(url, autocommit=True) as db:
            version = db.execute("SHOW server_version").fetchone()
            assert version is not None
            for name in given.only.split(","):
                ground = Ground(url, db)
                ground.clear()
                found = MEASURES[name](ground, given.scale)
                line = {
                    "at": datetime.now(UTC).isoformat(timespec="seconds"),
                    "commit": commit.stdout.strip(),
                    "postgresql": version[0].split()[0],
                    "cores": os.cpu_count(),
                    "load": round(os.getloadavg()[0], 2),
                    "scale": given.scale,
                    "measure": name,
                    **found,
                }
                print(json.dumps(found), name)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()

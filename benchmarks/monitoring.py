"""The cost of monitoring: `/metrics` and pages on a full table beside an empty one, in one run, taking turns.

    python -m benchmarks.monitoring --keep ~/tables  # fills a database once (10,000,000 + 1,000,000 rows)
    python -m benchmarks.monitoring --keep ~/tables --path / --path /tasks
    python -m benchmarks.monitoring --finished 200000 --pending 20000  # quick, and kept nowhere

Medians of whole HTTP requests to two real servers on one PostgreSQL. A leader has counted the queues, as it does every
30 s; what that costs is measured too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.dashboard import fill_all
from benchmarks.peers.records import checked_out
from tasklib import Config
from tasklib.db.database import Database
from tasklib.embedded import EmbeddedPostgres
from tasklib.migrations import migrate
from tasklib.store import fleet, maintenance
from tests.server.conftest import Running, running

RESULTS = Path(__file__).parent / "results" / "monitoring.jsonl"
LIMIT = 2.0
_SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "8GB", "fsync": "off", "maintenance_work_mem": "256MB"}


def database(server: EmbeddedPostgres, name: str, finished: int, pending: int) -> str:
    """A database with these tasks; one that is kept from an earlier run is taken as it is."""
    with psycopg.connect(server.url(), autocommit=True) as db:
        if db.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone() is not None:
            return server.url(name)
    url = server.create_database(name)
    migrate(Config(url))
    if finished:
        fill_all(url, finished, pending)
    return url


def lead(url: str) -> float:
    """Count the queues as a leader does, and keep the lead; the milliseconds it took."""
    db = Database(Config(url))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM leadership")
    term = db.run(fleet.lead("benchmark", 86400))
    assert term is not None
    began = time.perf_counter()
    db.run(maintenance.take_snapshot(term, 100_000))
    taken = 1000 * (time.perf_counter() - began)
    db.close()
    return taken


def once(server: Running, path: str) -> float:
    began = time.perf_counter()
    server.http.get(path, headers={"Accept": "text/html, text/plain"}).raise_for_status()
    return 1000 * (time.perf_counter() - began)


def measure(empty: Running, full: Running, paths: list[str], rounds: int) -> list[dict[str, Any]]:
    """Both take turns, so that whatever else the machine does meets both."""
    found = []
    for path in paths:
        times: dict[Running, list[float]] = {empty: [], full: []}
        for number in range(rounds + 10):
            for server in (empty, full) if number % 2 else (full, empty):
                taken = once(server, path)
                if number >= 10:  # by then statements are prepared and pages are in memory
                    times[server].append(taken)
        medians = [statistics.median(times[server]) for server in (empty, full)]
        found.append({"path": path, "empty_ms": medians[0], "full_ms": medians[1], "times": medians[1] / medians[0]})
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--finished", type=int, default=10_000_000)
    options.add_argument("--pending", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=100)
    options.add_argument("--path", action="append", help="What to ask for; may be repeated. Default: /metrics")
    options.add_argument("--keep", type=Path, help="A directory for the filled database, to measure again later.")
    options.add_argument("--write", action="store_true", help=f"Add the figures to {RESULTS.name}.")
    given = options.parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedPostgres(given.keep, settings=_SETTINGS))
        urls = [database(server, "seeing_empty", 0, 0), database(server, "seeing_full", given.finished, given.pending)]
        counting = [lead(url) for url in urls]
        empty, full = (stack.enter_context(running(Config(url))) for url in urls)
        measured = measure(empty, full, given.path or ["/metrics"], given.rounds)
        with psycopg.connect(urls[1]) as db:
            [(version,)] = db.execute("SELECT current_setting('server_version')").fetchall()
    record = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": checked_out(),
        "postgresql": version,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "finished": given.finished,
        "pending": given.pending,
        "rounds": given.rounds,
        "leader_counts_ms": {"empty": counting[0], "full": counting[1]},
        "measured": measured,
    }
    if given.write:
        with RESULTS.open("a") as file:
            file.write(json.dumps(record) + "\n")
    show(record)
    if any(m["times"] > LIMIT for m in measured):
        sys.exit(f"more than {LIMIT:g} times as long as with an empty table")


def show(record: dict[str, Any]) -> None:
    write = sys.stdout.write
    write(f"| path | empty, ms | {record['finished']:,} finished and {record['pending']:,} pending, ms | times |\n")
    write("|---|---|---|---|\n")
    for m in record["measured"]:
        write(f"| `{m['path']}` | {m['empty_ms']:.1f} | {m['full_ms']:.1f} | {m['times']:.2f} |\n")
    write(f"\nThe leader's count, every 30 s: {record['leader_counts_ms']['full']:.0f} ms.\n")


if __name__ == "__main__":
    main()

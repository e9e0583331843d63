"""How long the dashboard's pages take on an empty table and on a full one: `python -m benchmarks.dashboard`.

The same server in one run: 10,000,000 finished tasks and 1,000,000 pending ones between them and 100,000 newer finished
ones, and 20,000 of each other state. Medians of whole HTTP requests, without a cache in between.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from contextlib import ExitStack

import httpx
import psycopg

from tasklib import Config
from tasklib.testing import databases
from tests.server.conftest import running

PAGES = (
    "/",
    "/?range=24h",
    "/queues",
    "/queues/queue1",
    "/names/task1",
    "/charts?of=run&by=name&period=24h",
    "/charts?of=outcomes&by=worker",
    "/charts?of=arrivals&period=30d",
    "/workers",
    "/audit",
    "/tasks",
    "/tasks?q=state:pending",
    "/tasks?q=state:running",
    "/tasks?q=state:completed",
    "/tasks?q=state:failed",
    "/tasks?q=state:dead_letter",
    "/tasks?q=name:nobody",
    "/tasks?q=state:dead_letter+error:nothing",
    "/dead-letters",
    "/failures",
    "/failures?range=7d",
)
_END = {
    "pending": "NULL, NULL, NULL",
    "running": "NULL, 'w', now() + interval '1 h'",
    "failed": "NULL, NULL, NULL",
}
_FILL = """
INSERT INTO tasks (name, queue, state, kwargs, error, completed_at, worker_id, locked_until, next_retry_at, started_at)
SELECT 'task' || n %% 40, 'queue' || n %% 5, %(state)s, '{"number": 1}', %(error)s, {end},
       CASE WHEN %(state)s = 'failed' THEN now() END, now()
FROM generate_series(1, %(count)s) AS n
"""


def fill(db: psycopg.Connection, state: str, count: int) -> None:
    """So many tasks of one state, in chunks that fit a checkpoint."""
    error = "Traceback\nValueError: no" if state in ("failed", "dead_letter") else None
    text = _FILL.replace("{end}", _END.get(state, "now(), NULL, NULL"))
    while count > 0:
        db.execute(text.encode(), {"state": state, "error": error, "count": min(count, 500_000)})
        count -= 500_000


def fill_all(url: str, finished: int, pending: int) -> None:
    """The oldest first."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("ALTER TABLE tasks DISABLE TRIGGER USER")
        fill(db, "completed", finished - 100_000)
        for state in ("failed", "cancelled", "dead_letter"):
            fill(db, state, 20_000)
        fill(db, "running", 1_000)
        fill(db, "pending", pending)
        fill(db, "completed", 100_000)
        db.execute("VACUUM ANALYZE tasks")


def measure(client: httpx.Client, rounds: int) -> dict[str, float]:
    """The median of each page, in milliseconds; the pages take turns."""
    times: dict[str, list[float]] = {page: [] for page in PAGES}
    for number in range(rounds + 3):
        for page in PAGES:
            began = time.perf_counter()
            client.get(page, headers={"Accept": "text/html"}).raise_for_status()
            if number >= 3:
                times[page].append(1000 * (time.perf_counter() - began))
    return {page: statistics.median(found) for page, found in times.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--finished", type=int, default=10_000_000)
    options.add_argument("--pending", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=30)
    given = options.parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(databases.server())
        template = stack.enter_context(databases.template(server))
        url = stack.enter_context(databases.database(server, template))
        base = stack.enter_context(running(Config(url)))
        empty = measure(base.http, given.rounds)
        fill_all(url, given.finished, given.pending)
        full = measure(base.http, given.rounds)
    write = sys.stdout.write
    write(f"| page | empty, ms | {given.finished:,} finished, {given.pending:,} pending, ms | times |\n")
    write("|---|---|---|---|\n")
    for page in PAGES:
        write(f"| `{page}` | {empty[page]:.1f} | {full[page]:.1f} | {full[page] / empty[page]:.2f} |\n")


if __name__ == "__main__":
    main()

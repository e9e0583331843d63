"""How long the dashboard's pages take on an empty table, a small one and a full one, and what open browsers cost:
`python -m benchmarks.dashboard`.

The same server in one run. The small table has what the pages show and little else: 20,000 failed, cancelled and dead
tasks each, 1,000 that run, 10,000 that wait and 1,000 that completed. The full one has 10,000,000 finished tasks and
1,000,000 pending ones besides. Medians of whole HTTP requests. A leader has taken its snapshot of what waits, and
has ended: it doesn't work beside the pages. Then ten browsers, each with a stream of events that makes it fetch its
page anew: the processor time of a server of their own, which leads, and of PostgreSQL, beside no work, less what both
use in a time as long without browsers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

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
    "/charts?of=waiting&by=queue&period=24h",
    "/limits",
    "/flows",
    "/schedules",
    "/approvals",
    "/replays",
)
OPEN = ("/", "/", "/", "/tasks", "/tasks", "/queues", "/workers", "/failures", "/dead-letters", "/names/task1")
"""What is left open in ten browsers."""
_END = {
    "pending": "NULL, NULL, NULL",
    "running": "NULL, 'w', now() + interval '1 h'",
    "failed": "NULL, NULL, NULL",
}
_FILL = """
INSERT INTO tasks (name, queue, state, kwargs, error, completed_at, worker_id, locked_until, next_retry_at, started_at)
SELECT 'task' || n %% 40, 'queue' || n %% 5, %(state)s::text, '{"number": 1}', %(error)s, {end},
       CASE WHEN %(state)s::text = 'failed' THEN now() END, now()
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


def fill_small(url: str) -> None:
    """What the pages show, and little else."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("ALTER TABLE tasks DISABLE TRIGGER USER")
        for state in ("failed", "cancelled", "dead_letter"):
            fill(db, state, 20_000)
        fill(db, "running", 1_000)
        fill(db, "pending", 10_000)
        fill(db, "completed", 1_000)
        db.execute("VACUUM ANALYZE tasks")


def wait_for_snapshot(url: str) -> None:
    """Let a server lead until it has counted the waiting tasks, as the leader of a fleet has."""
    with ExitStack() as stack, psycopg.connect(url, autocommit=True) as db:
        serving(url, stack)
        text = "SELECT EXISTS (SELECT FROM snapshots WHERE figures -> 'levels' <> '[]')"
        while db.execute(text).fetchone() != (True,):
            time.sleep(0.2)


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


async def browse(base: str, page: str, until: float) -> int:
    """One browser with this page; how often it fetched it again."""
    fetched, headers = 0, {"Accept": "text/html", "HX-Request": "true", "TaskLib-Tick": "1"}
    async with httpx.AsyncClient(base_url=base, timeout=30) as client, client.stream("GET", "/live") as events:
        async for line in events.aiter_lines():
            if line == "event: tick":
                answer = await client.get(page, headers=headers)
                if answer.status_code != 304:
                    headers["If-None-Match"] = answer.raise_for_status().headers["etag"]
                fetched += 1
            if time.monotonic() > until:
                break
    return fetched


async def browse_all(base: str, seconds: float) -> int:
    until = time.monotonic() + seconds
    return sum(await asyncio.gather(*(browse(base, page, until) for page in OPEN)))


def processor_seconds(pids: Iterable[int]) -> float:
    """What these processes have used so far."""
    used = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")


def serving(url: str, stack: ExitStack) -> tuple[str, int]:
    """The address of a server in a process of its own, and its process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tasklib", "server", "--no-auth", "--port", str(port)]
    command += ["--database-url", url]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    base = f"http://127.0.0.1:{port}"
    while process.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(f"{base}/health/ready").status_code == 200:
                return base, process.pid
        time.sleep(0.1)
    raise SystemExit("the server ended before it was ready.")


def open_browsers(url: str, seconds: float, stack: ExitStack) -> tuple[float, float, int]:
    """Shares of a core that ten open browsers cost the server and PostgreSQL, and how many pages they fetched."""
    base, pid = serving(url, stack)

    def of_postgres() -> dict[int, float]:
        """By backend: those that end take their time with them."""
        text = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        with psycopg.connect(url) as db:
            return {pid: processor_seconds([pid]) for (pid,) in db.execute(text).fetchall()}

    def used(wait: Callable[[], int]) -> tuple[float, float, int]:
        before, backends, began = processor_seconds([pid]), of_postgres(), time.monotonic()
        fetched = wait()
        took = time.monotonic() - began
        of_database = sum(now - backends.get(each, 0.0) for each, now in of_postgres().items())
        return (processor_seconds([pid]) - before) / took, of_database / took, fetched

    def sleep() -> int:
        time.sleep(seconds)
        return 0

    asyncio.run(browse_all(base, 10))
    alone = used(sleep)
    with_browsers = used(lambda: asyncio.run(browse_all(base, seconds)))
    return with_browsers[0] - alone[0], with_browsers[1] - alone[1], with_browsers[2]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--finished", type=int, default=10_000_000)
    options.add_argument("--pending", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--open-seconds", type=float, default=60.0)
    given = options.parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(databases.server())
        template = stack.enter_context(databases.template(server))
        url = stack.enter_context(databases.database(server, template))
        base = stack.enter_context(running(Config(url)))
        empty = measure(base.http, given.rounds)
        fill_small(url)
        wait_for_snapshot(url)
        small = measure(base.http, given.rounds)
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("TRUNCATE tasks, snapshots")
        fill_all(url, given.finished, given.pending)
        wait_for_snapshot(url)
        full = measure(base.http, given.rounds)
        of_server, of_database, fetched = open_browsers(url, given.open_seconds, stack)
    write = sys.stdout.write
    title = f"{given.finished:,} finished, {given.pending:,} pending, ms"
    write(f"| page | empty, ms | small, ms | {title} | times empty | times small |\n|---|---|---|---|---|---|\n")
    for page in PAGES:
        before, alone, beside = empty[page], small[page], full[page]
        write(f"| `{page}` | {before:.1f} | {alone:.1f} | {beside:.1f} ")
        write(f"| {beside / before:.2f} | {beside / alone:.2f} |\n")
    write(f"\nTen browsers fetched {fetched} pages in {given.open_seconds:.0f} s: ")
    write(f"{of_server:.2%} of a core in the server, {of_database:.2%} in PostgreSQL.\n")


if __name__ == "__main__":
    main()

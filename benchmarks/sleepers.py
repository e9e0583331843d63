"""What one submission costs beside many sleeping workers: `python -m benchmarks.sleepers`.

    python -m benchmarks.sleepers                                    # beside 1, 16 and 100 workers
    python -m benchmarks.sleepers --sleepers 1,16 --count 100
    python -m benchmarks.sleepers --peers procrastinate,pgqueuer     # and these, 16 processes each

Tasks are submitted one by one, so far apart that all workers sleep again in between. Our workers are real ones, many in
a process; those of other systems are processes (`python -m benchmarks.peers install NAME`). Transactions are those that
`pg_stat_database` counts and CPU time is the server's, both less what the same workers use while nothing is submitted.

PostgreSQL up to version 18 wakes every session that listens in the database, whatever its channel, for a transaction
of its own: one for each sleeper. They are shown apart; the CPU time has all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.peers.catalogue import chosen
from benchmarks.peers.lab import Lab, default_directory
from benchmarks.peers.records import checked_out
from benchmarks.peers.server import Server
from benchmarks.peers.stage import MeasurementFailed, Stage
from benchmarks.peers.workloads import _await_pings
from tasklib import Client, Config, Worker, task
from tasklib.bench import cpu
from tasklib.bench.waking import percentile
from tasklib.embedded import EmbeddedPostgres
from tasklib.migrations import migrate

RESULTS = Path(__file__).parent / "results" / "sleepers.jsonl"
ROOT = Path(__file__).parents[1]
PER_PROCESS = 25
FLUSH_SECONDS = 35.0
"""By then every session has sent a statement, and reported what it did: listeners are asked every 30 s."""
WARM_UPS = 20
_COMMITTED = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"


@task(name="sleepers.ping")
async def ping() -> float:
    return time.time()


@dataclass(frozen=True)
class Cost:
    """Of one submission."""

    system: str
    sleepers: int
    transactions: float
    server_ms: float
    p50: float
    p99: float


class Meter:
    """What the server has done since it was made, less what it does when nothing is submitted."""

    def __init__(self, db: psycopg.Connection, idle_seconds: float) -> None:
        self._db, postmaster = db, cpu.postmaster_of(db)
        assert postmaster is not None
        self._postmaster = postmaster
        time.sleep(FLUSH_SECONDS)
        before, began = self._now(), time.monotonic()
        time.sleep(idle_seconds)
        self._began = time.monotonic()
        self._at_first = self._now()
        self._idle = [(b - a) / (self._began - began) for a, b in zip(before, self._at_first, strict=True)]

    def _now(self) -> tuple[float, float]:
        self._db.execute("SELECT pg_stat_force_next_flush()")
        row = self._db.execute(_COMMITTED).fetchone()
        assert row is not None
        return float(row[0]), cpu.seconds_of_trees([self._postmaster])

    def per_task(self, count: int) -> tuple[float, float]:
        """Transactions, and milliseconds of the server's CPU."""
        time.sleep(FLUSH_SECONDS)
        seconds = time.monotonic() - self._began
        used = [b - a - i * seconds for a, b, i in zip(self._at_first, self._now(), self._idle, strict=True)]
        return used[0] / count, 1000 * used[1] / count


def ours(url: str, sleepers: int, count: int, gap: float) -> Cost:
    with psycopg.connect(url, autocommit=True) as db, ExitStack() as stack:
        db.execute("DELETE FROM tasks")
        for number in range(0, sleepers, PER_PROCESS):
            here = min(PER_PROCESS, sleepers - number)
            command = [sys.executable, "-m", "benchmarks.sleepers", "--work", url, str(here)]
            process = subprocess.Popen(command, cwd=ROOT)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        asleep = "SELECT count(*) FROM workers WHERE asleep AND status = 'active'"
        _until(lambda: db.execute(asleep).fetchone() == (sleepers,))
        client = stack.enter_context(Client(url))
        _submit(client, WARM_UPS, gap)
        meter = Meter(db, count * gap)
        returned = _submit(client, count, gap)
        transactions, server_ms = meter.per_task(count)
        rows: dict[str, str] = dict(db.execute("SELECT id::text, result ->> 'value' FROM tasks").fetchall())
        late = [(float(rows[id_]) - at) * 1000 for id_, at in returned.items()]
    return Cost("tasklib", sleepers, transactions, server_ms, percentile(late, 50), percentile(late, 99))


def _submit(client: Client, count: int, gap: float) -> dict[str, float]:
    """When each submission returned, by the id of its task."""
    returned = {}
    for _ in range(count):
        id_ = client.submit_task(ping)
        returned[str(id_)] = time.time()
        time.sleep(gap)
    return returned


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the workers never fell asleep")
        time.sleep(0.2)


async def work(url: str, workers: int) -> None:
    config = Config(url)
    await asyncio.gather(*(Worker(config, names=["sleepers.ping"], signals=False).run() for _ in range(workers)))


def peer(stage: Stage, sleepers: int, count: int, gap: float) -> Cost:
    stage.make_fresh()
    with stage.workers(sleepers):
        time.sleep(FLUSH_SECONDS)  # nothing tells that they have started
        with psycopg.connect(stage.database_url, autocommit=True) as db:
            meter = Meter(db, count * gap)
            stage.ping(count, gap)
            transactions, server_ms = meter.per_task(count)
        pings = _await_pings(stage, count)
    late = [(began - returned) * 1000 for _, returned, began in pings if began]
    if len(late) < count:
        raise MeasurementFailed(f"{count - len(late)} pings were not picked up")
    name = stage.system.name
    return Cost(name, sleepers, transactions, server_ms, percentile(late, 50), percentile(late, 99))


def measure(arguments: argparse.Namespace) -> list[Cost]:
    lab = Lab(arguments.lab)
    settings = {"max_connections": "500", "shared_buffers": "256MB"}
    costs = []
    with EmbeddedPostgres(lab.directory / "postgres-sleepers", settings=settings) as postgres:
        server = Server(postgres.url(), postgres.postmaster_pid)
        server.create("sleepers")
        url = server.database_url("sleepers")
        migrate(Config(url))
        for sleepers in map(int, arguments.sleepers.split(",")):
            costs.append(ours(url, sleepers, arguments.count, arguments.gap))
            _show(costs[-1])
        for system in chosen(filter(None, arguments.peers.split(","))) if arguments.peers else ():
            stage = Stage(system, lab, server)
            try:
                costs.append(peer(stage, 16, arguments.count, arguments.gap))
                _show(costs[-1])
            except (MeasurementFailed, subprocess.TimeoutExpired) as e:
                print(f"{system.name}: {e}")
    return costs


def _show(cost: Cost) -> None:
    print(
        f"{cost.system:18} {cost.sleepers:4} sleepers: {cost.transactions:6.1f} transactions "
        f"({cost.transactions - cost.sleepers:.1f} but for listening), "
        f"{cost.server_ms:6.2f} ms of server CPU, picked up after {cost.p50:.2f} ms (p99 {cost.p99:.2f})",
        flush=True,
    )


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        return asyncio.run(work(sys.argv[2], int(sys.argv[3])))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sleepers", description=__doc__)
    parser.add_argument("--sleepers", default="1,16,100", help="so many workers, one after the other")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--gap", type=float, default=0.05, help="seconds between two submissions")
    parser.add_argument("--peers", default="", help="systems of benchmarks.peers that are installed")
    parser.add_argument("--lab", type=Path, default=default_directory())
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    costs = measure(arguments)
    alone = [cost.p50 for cost in costs if cost.system == "tasklib" and cost.sleepers == 1]
    for cost in costs:
        if alone and cost.system == "tasklib":
            print(f"beside {cost.sleepers}: {cost.p50 / statistics.mean(alone):.2f} of the pick-up beside one worker")
    record = {"commit": checked_out(), "load": load, "count": arguments.count, "costs": [asdict(c) for c in costs]}
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    return None


if __name__ == "__main__":
    main()

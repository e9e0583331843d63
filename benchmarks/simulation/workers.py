"""What real workers cost: their part of a task, an idle one, and one more shard."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from benchmarks.peers.server import Server
from benchmarks.simulation.costs import Linear, fitted
from benchmarks.simulation.sessions import NAME
from tasklib import Client, Config, Shard, Worker, task
from tasklib.migrations import migrate

TASKS = 4000
IDLE_SECONDS = 40.0
SHARDS = 4


@task(name=NAME)
async def work(n: int = 0) -> None:
    pass


def per_task(config: Config) -> Linear:
    """CPU time of a worker for each statement, and for each task: from batches of several sizes."""
    points = []
    for slots in (1, 5, 50, 400):
        with Client(config) as client:
            client.submit_many(work, [{"n": n} for n in range(TASKS)])
        worker = Worker(config.with_changes(max_prefetch=0), concurrency=slots, burst=True, names=[NAME], signals=False)
        begun = time.process_time()
        worker.run_sync()
        used = time.process_time() - begun
        counts = {stat.key.outcome: stat.count for stat in worker.collector.totals() if not stat.key.name}
        statements = counts["claim"] + counts["settle"]
        points.append((TASKS / statements, used / statements))
    return fitted(points)


def idle_seconds(config: Config) -> float:
    """CPU time of a worker that has nothing to do, per second."""
    return asyncio.run(_idle(config))


async def _idle(config: Config) -> float:
    async with Worker(config, names=[NAME], signals=False):
        await asyncio.sleep(5)
        begun, used = time.monotonic(), time.process_time()
        await asyncio.sleep(IDLE_SECONDS)
        return (time.process_time() - used) / (time.monotonic() - begun)


def shard_bytes(server: Server) -> float:
    """How much a worker's memory grows for each further shard."""
    names = [f"simulation_{number}" for number in range(SHARDS)]
    for number, name in enumerate(names):
        server.create(name)
        migrate(Config(shards=(Shard(number, server.database_url(name)),)).for_shard(number))
    try:
        with tempfile.TemporaryDirectory() as directory:
            few, many = (_resident(server, names[:n], Path(directory)) for n in (1, SHARDS))
        return max(0.0, (many - few) / (SHARDS - 1))
    finally:
        for name in names:
            server.drop(name)


def _resident(server: Server, names: list[str], directory: Path) -> float:
    """The memory of a worker of its own process, once it sleeps."""
    file = directory / f"{len(names)}.toml"
    entry = '[[shard]]\nnumber = {}\ndatabase_url = "{}"\n'
    file.write_text("".join(entry.format(n, server.database_url(name)) for n, name in enumerate(names)))
    with subprocess.Popen([sys.executable, "-m", "benchmarks.simulation.workers", str(file), "1"]) as process:
        for name in names:
            await_sleep(server.database_url(name), 1)
        time.sleep(1)
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        process.terminate()
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


def await_sleep(url: str, workers: int, schema: str = "public") -> None:
    """Until so many workers have announced that they sleep."""
    asleep = f"SELECT count(*) FROM {schema}.worker_registrations WHERE asleep"
    deadline = time.monotonic() + 120
    with psycopg.connect(url, autocommit=True) as db:
        while (row := db.execute(asleep.encode()).fetchone()) != (workers,):
            if time.monotonic() > deadline:
                raise SystemExit(f"{row} of {workers} workers sleep")
            time.sleep(0.2)


async def serve(shards_file: str, workers: int) -> None:
    """So many workers in this process, until it is terminated."""
    config = Config(shards_file=shards_file)
    await asyncio.gather(*(Worker(config, names=[NAME], signals=False).run() for _ in range(workers)))


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))

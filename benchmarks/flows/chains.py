"""A chain of three no-ops: TaskLib's, Celery's and DBOS', on one machine, in turns."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.flows import tasks
from benchmarks.flows.marks import moments
from benchmarks.flows.stage import Stage, running
from benchmarks.peers.server import Redis
from tasklib import Client, chain

HERE = Path(__file__).parent


def chains(stage: Stage, redis: Redis | None, count: int, rounds: int) -> dict[str, Any]:
    """Chains a second: from the first body that begins to the last that ends. They were submitted beforehand."""
    sides: dict[str, Callable[[int], None]] = {"tasklib": lambda n: _tasklib(stage, n)}
    celery, dbos = stage.lab.python("celery"), stage.lab.python("dbos")
    if celery and redis:
        sides["celery, prefork"] = lambda n: _celery(stage, celery, redis, n, "prefork", 2)
        sides["celery, threads"] = lambda n: _celery(stage, celery, redis, n, "threads", 10)
    if dbos:
        sides["dbos"] = lambda n: _dbos(stage, dbos, n)
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds):
        for side, drain in sides.items() if number % 2 == 0 else reversed(sides.items()):
            drain(count)
            rates[side].append(_rate(stage, count))
            print(f"  {side:16} {rates[side][-1]:8,.0f} chains/s", flush=True)
    median = {side: statistics.median(found) for side, found in rates.items()}
    peers = [rate for side, rate in median.items() if side != "tasklib"]
    return {
        "chains": count,
        "chains_per_second": {side: [round(rate) for rate in found] for side, found in rates.items()},
        "median": {side: round(rate) for side, rate in median.items()},
        "times_the_fastest_peer": round(median["tasklib"] / max(peers), 1) if peers else None,
        "versions": {name: stage.lab.versions(name, name) for name in ("celery", "dbos") if stage.lab.python(name)},
    }


def _rate(stage: Stage, count: int) -> float:
    began, ended = (moments(str(stage.marked(what))) for what in ("begin", "end"))
    if len(ended) != count:
        raise RuntimeError(f"{len(ended)} of {count} chains have run")
    return count / (ended[-1] - began[0])


def _tasklib(stage: Stage, count: int) -> None:
    config = stage.fresh("chains")
    with Client(config) as client:
        for n in range(count):
            client.submit_flow(chain(tasks.first.s(n), tasks.second.s(), tasks.third.s()))
    stage.server.checkpoint()
    with stage.workers(config):
        stage.await_marks("end", count)


def _celery(stage: Stage, python: Path, redis: Redis, count: int, pool: str, concurrency: int) -> None:
    stage.fresh("nothing")
    redis.ask("FLUSHALL")
    environment = stage.environment(FLOWS_REDIS=redis.url, PYTHONPATH=str(HERE))
    subprocess.run([python, str(HERE / "celery_side.py"), str(count)], env=environment, check=True)
    alone = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "CRITICAL"]
    how = ["--pool", pool, "--concurrency", str(concurrency), *alone]
    command = [str(python), "-m", "celery", "--app", "celery_side", "worker", *how]
    with running([command], environment, stage.lab.directory):
        stage.await_marks("end", count)


def _dbos(stage: Stage, python: Path, count: int) -> None:
    stage.fresh("nothing")
    stage.server.create("flows_dbos")
    url = stage.server.database_url("flows_dbos")
    environment = stage.environment(FLOWS_DATABASE_URL=url, PYTHONPATH=str(HERE))
    side = str(HERE / "dbos_side.py")
    subprocess.run([python, side, "submit", str(count)], env=environment, check=True, stdout=sys.stderr)
    stage.server.checkpoint()
    with running([[str(python), side, "work"]], environment, stage.lab.directory):
        stage.await_marks("end", count)

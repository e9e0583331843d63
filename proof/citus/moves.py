"""Move a distributed schema between the nodes of a Citus cluster while clients submit and workers run.

python -m proof.citus.moves --url postgresql://postgres@coordinator/db --moves 20

Every task that was acknowledged must be completed once, and no worker may end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, cycle, pairwise
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from proof.citus.tasks import square
from tasklib import Client, Config
from tasklib.migrations import migrate

BATCH = 20
_PATIENCE_SECONDS = 300.0
_MOVE = "SELECT citus_schema_move(%s::regnamespace, %s, %s, shard_transfer_mode := 'force_logical')"
_PLACE = """
    SELECT nodename, nodeport
    FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
    WHERE logicalrelid = %s::regclass"""
_NODES = "SELECT nodename, nodeport FROM pg_dist_node WHERE isactive AND shouldhaveshards ORDER BY 1, 2"


class Submitter(threading.Thread):
    """Submits batches until it is told to stop, and keeps the ids of those that were acknowledged."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._config = config
        self.acknowledged: list[uuid.UUID] = []
        self.refused: list[str] = []
        self.stop = threading.Event()

    def run(self) -> None:
        numbers = count()
        with Client(self._config) as client:
            while not self.stop.is_set():
                try:
                    ids = client.submit_many(square, [{"number": next(numbers)} for _ in range(BATCH)])
                except Exception as e:  # what a program that submits would see
                    self.refused.append(f"{type(e).__name__}: {e}")
                else:
                    self.acknowledged += ids


def run(url: str, moves: int, workers: int, through: str) -> dict[str, Any]:
    with ExitStack() as stack:
        coordinator = stack.enter_context(psycopg.connect(url, autocommit=True))
        name = stack.enter_context(_schema(coordinator, url))
        place = url if through == "coordinator" else _at(url, *_placement(coordinator, name))
        config = Config(place, schema=name)
        fleet = [stack.enter_context(_worker(place, name)) for _ in range(workers)]
        submitter = Submitter(config)
        submitter.start()
        try:
            took = list(_moved(coordinator, name, moves, submitter))
        finally:
            submitter.stop.set()
            submitter.join()
        ended = [worker.returncode for worker in fleet if worker.poll() is not None]
        return {
            "through": through,
            "moves": len(took),
            "longest_move_seconds": round(max(took), 1),
            "acknowledged": len(submitter.acknowledged),
            "refused_submissions": submitter.refused,
            "workers_ended": ended,
            **_verdict(coordinator, name, submitter.acknowledged),
        }


def _moved(coordinator: psycopg.Connection, name: str, moves: int, submitter: Submitter) -> Iterator[float]:
    nodes = cycle(coordinator.execute(_NODES).fetchall())
    done = 0
    while done < moves:
        target = next(nodes)
        if _placement(coordinator, name) == target:
            continue
        before = len(submitter.acknowledged)
        began = time.monotonic()
        coordinator.execute(_MOVE, [name, *target])
        yield time.monotonic() - began
        done += 1
        # The next one after new tasks have been submitted.
        _await(lambda seen=before: len(submitter.acknowledged) > seen)  # type: ignore[misc]


def _verdict(coordinator: psycopg.Connection, name: str, acknowledged: list[uuid.UUID]) -> dict[str, Any]:
    tasks = sql.Identifier(name, "tasks")
    unfinished = sql.SQL("SELECT count(*) FROM {} WHERE state IN ('pending', 'running', 'failed')").format(tasks)
    _await(lambda: coordinator.execute(unfinished).fetchone() == (0,), fails=False)
    found = sql.SQL(
        "SELECT id, state, lease_token, completed_at, (result -> 'value')::bigint, (kwargs -> 'number')::bigint FROM {}"
    ).format(tasks)
    rows = {row[0]: row[1:] for row in coordinator.execute(found)}
    known = [rows[id_] for id_ in acknowledged if id_ in rows]
    ends = sorted(row[2] for row in rows.values() if row[2] is not None)
    return {
        "lost": len(acknowledged) - len(known) + sum(row[0] != "completed" for row in known),
        "doubled": len(acknowledged) - len(set(acknowledged)),
        "wrong_results": sum(row[0] == "completed" and row[3] != row[4] ** 2 for row in known),
        "claimed_again": sum(row[1] > 1 for row in known),
        "longest_stall_seconds": round(max((b - a).total_seconds() for a, b in pairwise(ends)), 2),
    }


@contextmanager
def _schema(coordinator: psycopg.Connection, url: str) -> Iterator[str]:
    name = f"tasklib_moves_{uuid.uuid4().hex[:8]}"
    coordinator.execute("SET citus.enable_schema_based_sharding = on")
    coordinator.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    migrate(Config(url, schema=name))
    try:
        yield name
    finally:
        coordinator.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def _placement(coordinator: psycopg.Connection, name: str) -> tuple[str, int]:
    found = coordinator.execute(_PLACE, [f"{name}.tasks"]).fetchone()
    assert found is not None
    return str(found[0]), int(found[1])


def _at(url: str, host: str, port: int) -> str:
    return make_conninfo(url, host=host, port=port)


@contextmanager
def _worker(url: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "TASKLIB_DATABASE_URL": url, "TASKLIB_SCHEMA": name}
    command = [sys.executable, "-m", "tasklib", "worker", "proof.citus.tasks"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(condition: Any, *, fails: bool = True) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            if fails:
                raise TimeoutError("nothing was submitted for minutes")
            return
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default=os.environ.get("TASKLIB_CITUS_URL"), help="the coordinator; TASKLIB_CITUS_URL")
    parser.add_argument("--moves", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--through", choices=("node", "coordinator"), default="node")
    given = parser.parse_args()
    if given.url is None:
        print("Skipped: no Citus cluster. Set TASKLIB_CITUS_URL to the address of its coordinator.")
        return 0
    found = run(given.url, given.moves, given.workers, given.through)
    print(json.dumps(found, indent=2))
    bad = found["lost"] or found["doubled"] or found["wrong_results"] or found["workers_ended"]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

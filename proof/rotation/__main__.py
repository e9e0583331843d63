"""Rotate the key of many sealed tasks while they run, and kill the rotation: `python -m proof.rotation`.

python -m proof.rotation --tasks 1000000 --kills 10

Workers run the tasks and a producer that still seals with the old key adds more. `tasklib keys rotate` is killed (-9)
after each tenth or so of the tasks, and started again; the last ones go on until no task of the old key is left. Then
every row is opened with the new key alone: each has its own arguments, each result is the one of its arguments, no
number is missing or there twice, and no task ran twice.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from proof.rotation.worker import pay
from tasklib import Client, Config
from tasklib.client.sealing import opened_task
from tasklib.embedded import EmbeddedPostgres
from tasklib.errors import TaskLibError
from tasklib.migrations import migrate
from tasklib.models import Task

RESULT = Path(__file__).parents[1] / "results" / "rotation.json"
OLD, NEW = "2025-11", "2026-11"
_BATCH = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.rotation", description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    given = parser.parse_args()
    with EmbeddedPostgres() as server:
        migrate(Config(server.url()))
        figures = run(server.url(), given.tasks, given.kills)
    command = f"python -m proof.rotation --tasks {given.tasks} --kills {given.kills}"
    figures = {"command": command, "on": f"{datetime.now(UTC):%Y-%m-%d}", **figures}
    print(json.dumps(figures, indent=2))
    if given.write:
        RESULT.write_text(json.dumps(figures, indent=2) + "\n")
    sys.exit(any(figures[what] for what in WRONG))


WRONG = ("unreadable", "lost", "doubled", "ran_twice", "failed", "old_key_left")
"""What must be 0."""


def run(url: str, tasks: int, kills: int) -> dict[str, Any]:
    """Rotate in this database, and say what became of the tasks."""
    keys = {key: (key, os.urandom(32)) for key in (OLD, NEW)}
    began = time.monotonic()
    with psycopg.connect(url, autocommit=True) as db:
        with Client(Config(url, keys=(keys[OLD],))) as client:
            for first in range(0, tasks, _BATCH):
                client.submit_many(pay, [{"n": n} for n in range(first, min(first + _BATCH, tasks))])
        db.execute("ANALYZE tasks")
        submitted = time.monotonic()
        with ExitStack() as stack:
            new_first, old_first = ([keys[a], keys[b]] for a, b in ((NEW, OLD), (OLD, NEW)))
            workers = [stack.enter_context(_started(url, new_first, "proof.rotation.worker", "work")) for _ in "12"]
            producer = stack.enter_context(
                _started(url, old_first, "proof.rotation.worker", "produce", str(tasks), output=subprocess.PIPE)
            )
            killed = sum(_killed_rotation(url, new_first, db, tasks // (kills + 1)) for _ in range(kills))
            producer.terminate()
            produced = int(producer.communicate()[0])
            rounds = 1
            while _rotation(url, new_first).wait() != 0:  # tasks ran, or changed, while it passed
                rounds += 1
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait()
        figures = {"tasks": tasks + produced, "submitted_meanwhile": produced, "kills": killed, "last_rounds": rounds}
        return {
            **figures,
            **checked(db, Config(url, keys=(keys[NEW],)), tasks + produced),
            "submit_seconds": round(submitted - began),
            "seconds": round(time.monotonic() - submitted),
        }


def checked(db: psycopg.Connection[Any], config: Config, expected: int) -> dict[str, int]:
    """What the rows say, opened with the new key alone."""
    numbers: Counter[int] = Counter()
    states: Counter[str] = Counter()
    unreadable = ran_twice = 0
    for row in _rows(db):
        states[row.state] += 1
        ran_twice += row.lease_token > 1
        try:
            opened = opened_task(config, row)
            readable = opened.result is None or opened.result == opened.kwargs["n"]
        except TaskLibError:
            readable = False
        if readable:
            numbers[row.kwargs["n"]] += 1
        else:
            unreadable += 1
    return {
        "completed": states["completed"],
        "failed": states["failed"] + states["dead_letter"],
        "unreadable": unreadable,
        "lost": len(range(expected)) - len(numbers.keys() & set(range(expected))),
        "doubled": sum(count > 1 for count in numbers.values()),
        "ran_twice": ran_twice,
        "old_key_left": _value(db, f"SELECT count(*) FROM tasks WHERE key_id IS DISTINCT FROM '{NEW}'"),
        "resealed": _resealed(db),
    }


def _rows(db: psycopg.Connection[Any]) -> Iterator[Task]:
    columns = ("id", "name", "state", "kwargs", "result", "key_id", "lease_token", "error", "progress")
    with db.transaction(), db.cursor("rotated") as cursor:
        cursor.itersize = _BATCH
        cursor.execute(
            "SELECT id, name, state, kwargs, result -> 'value', key_id, lease_token, error, progress FROM tasks"
        )
        for row in cursor:
            yield Task(**dict(zip(columns, row, strict=True)))


def _killed_rotation(url: str, ring: list[tuple[str, bytes]], db: psycopg.Connection[Any], after: int) -> bool:
    """Start a rotation and kill it once it has sealed so many tasks anew; False if it ended before."""
    least = _resealed(db) + after
    rotation = _rotation(url, ring)
    while _resealed(db) < least:
        if rotation.poll() is not None:
            return False
        time.sleep(0.05)
    rotation.kill()
    rotation.wait()
    return True


def _rotation(url: str, ring: list[tuple[str, bytes]]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tasklib", "keys", "rotate", OLD]
    return subprocess.Popen(command, env=_environment(url, ring), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def _started(
    url: str, ring: list[tuple[str, bytes]], module: str, *arguments: str, output: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, env=_environment(url, ring), stdout=output, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _environment(url: str, ring: list[tuple[str, bytes]]) -> dict[str, str]:
    keys = ",".join(f"{key_id}:{b64encode(key).decode()}" for key_id, key in ring)
    others = {name: value for name, value in os.environ.items() if not name.startswith("TASKLIB_")}
    return {**others, "TASKLIB_DATABASE_URL": url, "TASKLIB_KEYS": keys}


def _resealed(db: psycopg.Connection[Any]) -> int:
    """How many tasks the pages that were committed have sealed anew, by their records."""
    return _value(db, "SELECT COALESCE(sum((details ->> 'count')::int), 0) FROM audit WHERE action = 'key.rotate'")


def _value(db: psycopg.Connection[Any], query: str) -> int:
    row = db.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


if __name__ == "__main__":
    main()

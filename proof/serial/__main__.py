"""Kill the worker that runs the task of a serial queue, again and again, and check the order: `python -m proof.serial`.

python -m proof.serial --kills 200 --workers 3

Each kill (-9) hits the worker whose task has just begun; a new worker takes its place. In the end every task has
completed, in the order of insertion, and no task began while another was between its begin and its end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from tasklib import Client
from tasklib.embedded import EmbeddedPostgres
from tasklib.migrations import migrate

RESULT = Path(__file__).parents[1] / "results" / "serial.json"
_MARKS = "CREATE TABLE marks (id bigserial, entry int, what text, at timestamptz DEFAULT clock_timestamp())"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.serial", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=0, help="0: twice as many as kills, and 50")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    given = parser.parse_args()
    tasks = given.tasks or 2 * given.kills + 50
    figures = run(tasks, given.kills, given.workers)
    print(json.dumps(figures, indent=2))
    if given.write:
        RESULT.write_text(json.dumps(figures, indent=2) + "\n")
    sys.exit(bool(figures["out_of_order"] or figures["overlaps"] or figures["unfinished"]))


def run(tasks: int, kills: int, workers: int) -> dict[str, Any]:
    began = time.monotonic()
    with EmbeddedPostgres() as server:
        url = server.url()
        with Client(url) as client, psycopg.connect(url, autocommit=True) as db:
            migrate(client.config)
            db.execute(_MARKS)
            db.execute(
                "INSERT INTO tasks (name, queue, kwargs, scheduled_at) SELECT 'serial.book', 'ledger', "
                "jsonb_build_object('entry', n), now() - interval '1 hour' + n * interval '1 ms' "
                "FROM generate_series(1, %s) AS n",
                (tasks,),
            )
            fleet = [_start(url) for _ in range(workers)]
            done = _kill(db, fleet, url, kills)
            _until(db, lambda: _value(db, "SELECT count(*) FROM tasks WHERE completed_at IS NULL") == 0)
            for worker in fleet:
                worker.terminate()
            for worker in fleet:
                worker.wait()
            return {"command": f"python -m proof.serial --kills {kills} --workers {workers}"} | {
                "on": f"{datetime.now(UTC):%Y-%m-%d}",
                "tasks": tasks,
                "kills": done,
                **checked(db),
                "seconds": round(time.monotonic() - began),
            }


def checked(db: psycopg.Connection[Any]) -> dict[str, Any]:
    """What the rows and the marks say."""
    completed = [row[0] for row in db.execute(
        "SELECT (kwargs ->> 'entry')::int FROM tasks WHERE state = 'completed' ORDER BY completed_at, id"
    )]  # fmt: skip
    marks = db.execute("SELECT entry, what FROM marks ORDER BY id").fetchall()
    ended: set[int] = set()
    overlaps = redone = 0
    for entry, what in marks:
        if what == "end":
            ended.add(entry)
            continue
        # When an entry begins, all before it have ended, and none behind it has begun.
        overlaps += {*range(1, entry)} != ended - {entry}
        redone += entry in ended  # killed after its end, before its result was stored
    begins = sum(what == "begin" for _, what in marks)
    return {
        "completed": len(completed),
        "unfinished": _value(db, "SELECT count(*) FROM tasks WHERE state <> 'completed'"),
        "out_of_order": sum(a > b for a, b in itertools.pairwise(completed)),
        "overlaps": overlaps,
        "done_again": redone,
        "begins": begins,
        "began_again": begins - len({entry for entry, what in marks if what == "begin"}),
        "crashes_counted": _value(db, "SELECT COALESCE(sum(crash_count), 0) FROM tasks"),
    }


def _kill(db: psycopg.Connection[Any], fleet: list[subprocess.Popen[bytes]], url: str, kills: int) -> int:
    """Kill so many workers, each in the midst of a task, and after each let at least one task complete."""
    for number in range(kills):
        completed = _value(db, "SELECT count(*) FROM tasks WHERE state = 'completed'")
        if not _until(db, lambda: _victim(db, fleet) is not None):
            return number
        victim = _victim(db, fleet)
        if victim is not None:
            os.kill(fleet[victim].pid, signal.SIGKILL)
            fleet[victim].wait()
            fleet[victim] = _start(url)
        _until(db, lambda least=completed: _value(db, "SELECT count(*) FROM tasks WHERE state = 'completed'") > least)
        if number % 20 == 19:
            print(f"{number + 1} kills", file=sys.stderr, flush=True)
    return kills


def _victim(db: psycopg.Connection[Any], fleet: list[subprocess.Popen[bytes]]) -> int | None:
    """The place of the worker that has begun a task."""
    row = db.execute(
        "SELECT workers.pid FROM tasks JOIN workers ON workers.id = tasks.worker_id WHERE state = 'running' "
        "AND EXISTS (SELECT FROM marks WHERE entry = (kwargs ->> 'entry')::int AND what = 'begin' "
        "AND marks.at > tasks.started_at)"
    ).fetchone()
    return next((place for place, worker in enumerate(fleet) if row is not None and worker.pid == row[0]), None)


def _start(url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "proof.serial.worker", url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _until(db: psycopg.Connection[Any], holds: Any) -> bool:
    """Whether it came to hold; False once nothing is left to do."""
    while not holds():
        if _value(db, "SELECT count(*) FROM tasks WHERE completed_at IS NULL") == 0:
            return False
        time.sleep(0.005)
    return True


def _value(db: psycopg.Connection[Any], query: str) -> int:
    row = db.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


if __name__ == "__main__":
    main()

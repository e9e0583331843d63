"""Kill a worker with -9 while it drains, start another, and count: `python -m proof.killed`.

python -m proof.killed --tasks 60000 --slots 100
python -m proof.killed --tasks 60000 --slots 100 --at-most-once
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psycopg

from tasklib import Client
from tasklib.embedded import EmbeddedPostgres
from tasklib.migrations import migrate


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.killed", description=__doc__)
    parser.add_argument("--tasks", type=int, default=60_000)
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--at-most-once", action="store_true")
    given = parser.parse_args()
    figures = run(given.tasks, given.slots, at_most_once=given.at_most_once)
    print(json.dumps(figures, indent=2))
    wrong = figures["began_twice"] if given.at_most_once else figures["dead_letters"] + figures["never_began"]
    sys.exit(bool(wrong))


def run(tasks: int, slots: int, *, at_most_once: bool) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as directory, EmbeddedPostgres() as server:
        beginnings = Path(directory) / "beginnings"
        os.environ["KILLED_BEGINNINGS"] = str(beginnings)
        from proof.killed import worker

        url = server.url()
        function = worker.once if at_most_once else worker.unretried
        with Client(url) as client, psycopg.connect(url, autocommit=True) as db:
            migrate(client.config)
            ids = client.submit_many(function, [{} for _ in range(tasks)])
            victim = _start(url, slots, function.name)
            _wait(db, "SELECT count(*) FROM tasks WHERE state = 'completed'", tasks // 6)
            victim.kill()
            victim.wait()
            held = _value(db, "SELECT count(*) FROM tasks WHERE state = 'running'")
            other = _start(url, slots, function.name)
            _wait(db, "SELECT count(*) FROM tasks WHERE completed_at IS NOT NULL", tasks)
            other.terminate()
            other.wait()
            began = Counter(beginnings.read_text().split())
            return {
                "tasks": tasks,
                "held_when_killed": held,
                "completed": _value(db, "SELECT count(*) FROM tasks WHERE state = 'completed'"),
                "dead_letters": _value(db, "SELECT count(*) FROM tasks WHERE state = 'dead_letter'"),
                "counted_a_crash": _value(db, "SELECT count(*) FROM tasks WHERE crash_count > 0"),
                "used_a_retry": _value(db, "SELECT count(*) FROM tasks WHERE retry_count > 0"),
                "never_began": len({str(id_) for id_ in ids} - began.keys()),
                "began_twice": sum(count > 1 for count in began.values()),
            }


def _start(url: str, slots: int, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "proof.killed.worker", url, str(slots), name])


def _wait(db: psycopg.Connection, query: str, least: int) -> None:
    while _value(db, query) < least:
        time.sleep(0.02)


def _value(db: psycopg.Connection, query: str) -> int:
    row = db.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


if __name__ == "__main__":
    main()

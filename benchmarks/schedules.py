"""How late slots are fired: `python -m benchmarks.schedules`.

    python -m benchmarks.schedules                       # 100,000 schedules, 1,000 due each second, for 30 s
    python -m benchmarks.schedules --schedules 10000 --seconds 10

Two processes stand for election; one leads. Each second a hundredth of the schedules is due, all at the same instant:
intervals, and cron expressions of a zone with summer time, each with arguments of its own. Then the leader is killed,
and the other one takes over when the lease has ended. A slot's lateness ends with the commit that made its task
(`track_commit_timestamp`). The tasks are not run: that would be another measurement.
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
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.peers.records import checked_out
from tasklib import Config
from tasklib.bench import cpu
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.embedded import EmbeddedPostgres
from tasklib.events import Events
from tasklib.maintenance.service import Maintenance
from tasklib.migrations import migrate
from tasklib.schedules import Schedule, next_slot
from tasklib.stats import StatsCollector

RESULTS = Path(__file__).parent / "results" / "schedules.jsonl"
ROOT = Path(__file__).parents[1]
LEASE = 5.0
LIMIT_MS = 200.0
SETTINGS = {"shared_buffers": "256MB", "track_commit_timestamp": "on"}
_INTERVAL, _CRON = 80, 120
"""Seconds between two slots: of two fifths of the schedules, and of the others. Together a hundredth per second."""


@dataclass(frozen=True)
class Lateness:
    """Of the slots of some seconds, in milliseconds."""

    slots: int
    p50: float
    p99: float
    most: float


def rules(started: datetime) -> list[tuple[str, datetime]]:
    """The specs as JSON, without their end, and their first slots: of five, two every 80 s and three every 120 s."""
    every = [
        Schedule(every=timedelta(seconds=_INTERVAL), anchor=started + timedelta(seconds=n)) for n in range(_INTERVAL)
    ]
    crons = [Schedule(f"{n % 60} {n // 60}-59/2 * * * *", timezone="Europe/Berlin") for n in range(_CRON)]
    found = []
    for number in range(_INTERVAL * _CRON):
        fifth, turn = number % 5, number // 5
        rule = every[(2 * turn + fifth) % _INTERVAL] if fifth < 2 else crons[(3 * turn + fifth - 2) % _CRON]
        first = next_slot(rule, started)
        assert first is not None
        found.append((json.dumps(rule.to_json())[:-1], first))
    return found


def fill(db: psycopg.Connection, count: int) -> None:
    [(now,)] = db.execute("SELECT date_trunc('second', now()) + interval '20 s'").fetchall()
    known = rules(now.astimezone(UTC))
    template = json.dumps(
        {"queue": "default", "max_retries": 3, "priority": 0, "tags": {}, "required_capabilities": [], "kwargs": "N"}
    )
    with db.cursor().copy("COPY schedules (name, task, spec, template, next_slot) FROM STDIN") as rows:
        for number in range(count):
            spec, first = known[number % len(known)]
            arguments = f'{{"tenant": {number}}}'
            given = f'{spec}, "args": {arguments}}}', template.replace('"N"', arguments)
            rows.write_row((f"tenant-{number:06}", "report", *given, first))
    db.execute("VACUUM ANALYZE schedules")
    db.execute("CHECKPOINT")


async def lead(url: str, name: str) -> None:
    """What a worker or a server does beside its work."""
    config = Config(url, leader_lease_seconds=LEASE)
    control = ReconnectingConnection(config, "control")
    await asyncio.gather(*Maintenance(config, control, Events(), StatsCollector(), lambda: name).jobs())


def start(url: str, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "benchmarks.schedules", "--lead", url, name], cwd=ROOT)


def lateness(db: psycopg.Connection, since: datetime, before: datetime) -> Lateness:
    query = (
        "SELECT 1000 * extract(epoch FROM pg_xact_commit_timestamp(xmin) - slot)::float8 FROM tasks "
        "WHERE slot >= %s AND slot < %s ORDER BY 1"
    )
    late = [row[0] for row in db.execute(query, (since, before))]
    cuts = statistics.quantiles(late, n=100)
    return Lateness(len(late), cuts[49], cuts[98], late[-1])


def value(db: psycopg.Connection, query: str) -> Any:
    row = db.execute(query.encode()).fetchone()
    return row and row[0]


def wait(db: psycopg.Connection, query: str) -> None:
    while not value(db, query):
        time.sleep(0.1)


def measure(url: str, count: int, seconds: int) -> dict[str, Any]:
    with psycopg.connect(url, autocommit=True) as db, ExitStack() as stack:
        fill(db, count)
        postmaster = cpu.postmaster_of(db)
        leaders = {name: start(url, name) for name in ("one", "two")}
        for process in leaders.values():
            stack.callback(process.wait)
            stack.callback(process.kill)
        wait(db, "SELECT count(*) > 0 FROM tasks")
        holder = value(db, "SELECT holder FROM leadership")
        time.sleep(2.0)  # by then its statements are prepared
        roots = ([leaders[holder].pid], [postmaster] if postmaster else [])
        since, used = value(db, "SELECT now()"), [cpu.seconds_of_trees(root) for root in roots]
        time.sleep(seconds)
        leading = [now - before for now, before in zip(map(cpu.seconds_of_trees, roots), used, strict=True)]
        load = os.getloadavg()[0]
        killed = value(db, "SELECT now()")
        leaders[holder].kill()
        # Slots that are due while the lead changes hands, and until the new leader has caught up.
        wait(db, f"SELECT holder <> '{holder}' FROM leadership")
        taken = value(db, "SELECT now()")
        wait(db, f"SELECT min(next_slot) > '{taken}' FROM schedules")
        living, after = lateness(db, since, killed), lateness(db, killed, taken)
        skipped, doubled = value(db, "SELECT sum(skipped) FROM schedules"), value(db, _DOUBLED)
    return {
        "schedules": count,
        "seconds": seconds,
        "load": load,
        "living_leader_ms": living.__dict__,
        "leader_cpu_ms_per_1000": 1e6 * leading[0] / living.slots,
        "server_cpu_ms_per_1000": 1e6 * leading[1] / living.slots,
        "lease_ms": 1000 * LEASE,
        "after_its_death_ms": after.__dict__,
        "skipped": int(skipped),
        "doubled": doubled,
    }


_DOUBLED = "SELECT count(*) FROM (SELECT FROM tasks GROUP BY schedule, slot HAVING count(*) > 1) AS slots"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--schedules", type=int, default=100_000)
    options.add_argument("--seconds", type=int, default=30)
    options.add_argument("--write", action="store_true", help=f"Add the figures to {RESULTS.name}.")
    options.add_argument("--lead", nargs=2, metavar=("URL", "NAME"), help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.lead:
        asyncio.run(lead(*given.lead))
        return
    with EmbeddedPostgres(settings=SETTINGS) as server:
        url = server.create_database("schedules")
        migrate(Config(url))
        measured = measure(url, given.schedules, given.seconds)
        with psycopg.connect(url) as db:
            version = value(db, "SELECT current_setting('server_version')")
    record = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": checked_out(),
        "postgresql": version,
        "cores": os.cpu_count(),
        **measured,
    }
    if given.write:
        with RESULTS.open("a") as file:
            file.write(json.dumps(record) + "\n")
    print(json.dumps(record, indent=2))
    if measured["living_leader_ms"]["p99"] > LIMIT_MS:
        print(f"later than {LIMIT_MS:g} ms with a living leader")
    if measured["after_its_death_ms"]["most"] > 1000 * (LEASE + 1):
        print("later than the lease and a second after the leader's death")


if __name__ == "__main__":
    main()

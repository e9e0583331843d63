"""Schedules as a shop would have them, and schedules with hostile strings."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import psycopg

from tasklib import Client, Schedule
from tasklib.tasks import registry
from tests.dashboard.conftest import Site
from tests.dashboard.scenes import HOSTILE

_NIGHTS = [*["completed"] * 3, "dead_letter", *["completed"] * 3, "failed", *["completed"] * 2]


def shop(site: Site) -> None:
    """Schedules of every state, with runs and skipped slots."""
    client = site.client
    _create(client, "nightly-report", "reports.monthly", Schedule(
        "0 3 * * *", timezone="Europe/Berlin", overlap="skip", jitter=30,
        args={"full": True, "smtp_password": "hunter2"}))  # fmt: skip
    _create(client, "stock", "sync_inventory", Schedule(every=timedelta(minutes=15)))
    _create(client, "heartbeat", "ping", Schedule("* * * * * *"))
    _create(client, "invoices", "generate_invoice", Schedule("30 6 1 * *", timezone="America/New_York"))
    _create(client, "newsletter", "send_email", Schedule(["0 9 * * MON-FRI", "0 11 * * SAT,SUN"]))
    client.pause_schedule("newsletter", "the provider blocks us; ticket 1042")
    _create(client, "old-cleanup", "cleanup", Schedule("@hourly"))
    _create(client, "late-one", "cleanup", Schedule("@hourly"))
    with psycopg.connect(site.config.database_url, autocommit=True) as db:
        for number, state in enumerate(_NIGHTS, 1):
            run(db, "nightly-report", state, timedelta(days=number))
        for number in range(10):
            run(db, "stock", "completed", timedelta(minutes=15 * (number + 1)))
        skip(db, "nightly-report", "overlap", 1, timedelta(days=12))
        skip(db, "nightly-report", "too_old", 3, timedelta(days=20))
        db.execute("UPDATE schedules SET fired = 10, skipped = 4, last_slot = now() WHERE name = 'nightly-report'")
        db.execute("UPDATE schedules SET retired_at = now() WHERE name = 'old-cleanup'")
        db.execute("UPDATE schedules SET source = 'code', module = 'shop.tasks' WHERE name = 'nightly-report'")
        db.execute("UPDATE schedules SET next_slot = now() - interval '70 minutes' WHERE name = 'late-one'")


def run(db: psycopg.Connection, schedule: str, state: str, ago: timedelta, task: str = "reports.monthly") -> None:
    """A run of a slot that was so long ago."""
    ended = state in ("completed", "cancelled", "dead_letter")
    db.execute(
        """INSERT INTO tasks (name, state, schedule, slot, created_at, scheduled_at, started_at, completed_at,
                              next_retry_at)
           SELECT %s, %s, %s, slot, slot + interval '80 ms', slot, slot + interval '1 s',
                  CASE WHEN %s THEN slot + interval '42 s' END,
                  CASE WHEN %s = 'failed' THEN now() + interval '1 hour' END
           FROM (SELECT date_trunc('second', now() - %s::interval) AS slot) AS s""",
        (task, state, schedule, ended, state, ago),
    )


def skip(db: psycopg.Connection, schedule: str, reason: str, count: int, ago: timedelta) -> None:
    db.execute(
        """INSERT INTO schedule_skips (schedule, reason, count, first_slot, last_slot)
           VALUES (%s, %s, %s, now() - %s::interval - make_interval(hours => %s), now() - %s::interval)""",
        (schedule, reason, count, ago, count - 1, ago),
    )


def hostile(site: Site) -> None:
    """This text in every field that takes one."""
    with psycopg.connect(site.config.database_url, autocommit=True) as db:
        for number, evil in enumerate(HOSTILE):
            short = evil[:400]
            _create(site.client, short, short, Schedule(
                "@daily", args={short: short}, queue=short, tags={short: short}))  # fmt: skip
            site.client.pause_schedule(short, evil[:900])
            run(db, short, "dead_letter", timedelta(hours=1 + number), short)
            skip(db, short, "overlap", 2, timedelta(hours=5))
        # What only a newer version, or plain SQL, would store.
        db.execute(
            "UPDATE schedules SET module = %s, source = 'code', paused_by = %s, spec = spec || %s WHERE name = %s",
            (HOSTILE[0], HOSTILE[1], json.dumps({"timezone": HOSTILE[0]}), HOSTILE[1][:400]),
        )


def _create(client: Client, name: str, task: str, schedule: Schedule) -> Any:
    with registry.isolated():  # test modules may have registered functions of these names, with other arguments
        return client.create_schedule(task, schedule, name=name, registered_elsewhere=True)


def slot_of(site: Site, name: str) -> datetime:
    with psycopg.connect(site.config.database_url) as db:
        row = db.execute("SELECT max(slot) FROM tasks WHERE schedule = %s", (name,)).fetchone()
    assert row is not None
    slot: datetime = row[0]
    return slot

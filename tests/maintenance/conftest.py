"""A leader's scheduler, and schedules that are due for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tasklib import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event, Events
from tasklib.maintenance.leader import Leadership
from tasklib.maintenance.schedules import Scheduler
from tasklib.schedules import Schedule
from tasklib.store import fleet
from tasklib.store.fleet import Term

HOUR = timedelta(hours=1)
TEMPLATE = {
    "queue": "reports",
    "kwargs": {"day": 1},
    "max_retries": 2,
    "timeout_seconds": 60,
    "priority": 5,
    "tags": {"team": "a"},
    "required_capabilities": ["gpu"],
}
Make = Callable[..., datetime]


@pytest.fixture
async def leader_db(config: Config) -> ReconnectingConnection:
    return ReconnectingConnection(config, "schedules")


@pytest.fixture
async def term(leader_db: ReconnectingConnection) -> Term:
    term = await leader_db.run(fleet.lead("leader", 60))
    assert term is not None
    return term


@pytest.fixture
def seen() -> list[Event]:
    return []


@pytest.fixture
async def scheduler(config: Config, leader_db: ReconnectingConnection, seen: list[Event]) -> Scheduler:
    events = Events()
    events.subscribe(seen.append)
    return Scheduler(leader_db, leader_db, Leadership(config, leader_db, events), events)


@pytest.fixture
def make(db: psycopg.Connection) -> Make:
    """Store a schedule whose next slot is some time ago, by the database's clock; returns that slot."""

    def make(name: str = "nightly", *, ago: timedelta = timedelta(seconds=5), **options: Any) -> datetime:
        row = db.execute("SELECT now()").fetchone()
        assert row is not None
        slot: datetime = row[0].astimezone(UTC) - ago
        spec = Schedule(every=options.pop("every", HOUR), anchor=slot, **options).to_json()
        db.execute(
            "INSERT INTO schedules (name, task, spec, template, next_slot) VALUES (%s, 'report', %s, %s, %s)",
            (name, json.dumps(spec), json.dumps(TEMPLATE), slot),
        )
        return slot

    return make


def slots_of(db: psycopg.Connection, name: str = "nightly") -> list[datetime]:
    return [row[0] for row in db.execute("SELECT slot FROM tasks WHERE schedule = %s ORDER BY slot", (name,))]

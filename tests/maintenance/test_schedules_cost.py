"""Firing schedules: how many statements and rows it takes, and what is counted."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tasklib import Config
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Events
from tasklib.maintenance.leader import Leadership
from tasklib.maintenance.schedules import Scheduler, decide
from tasklib.schedules import Due, Schedule, due
from tasklib.sql import statement
from tasklib.store import firing
from tasklib.store.fleet import Term
from tests.maintenance.conftest import HOUR, Make, slots_of


async def test_looking_and_firing_read_indexes_however_many_schedules_and_runs_there_are(
    db: psycopg.Connection, term: Term, make: Make, leader_db: ReconnectingConnection
) -> None:
    make("s0", ago=-HOUR)
    db.execute(
        "INSERT INTO schedules (name, task, spec, template, next_slot) SELECT 's' || n, task, spec, template, "
        "next_slot + n * interval '1 min' FROM schedules, generate_series(1, 5000) AS n"
    )
    db.execute("UPDATE schedules SET next_slot = now() WHERE length(name) <= 3")
    db.execute("UPDATE schedules SET waiting_slot = now() WHERE name LIKE '%7'")
    db.execute(
        "INSERT INTO tasks (name, schedule, slot) SELECT 'report', name, now() - n * interval '1 h' "
        "FROM schedules, generate_series(1, 2) AS n"
    )
    db.execute("INSERT INTO schedule_skips SELECT schedule, slot, slot, 'overlap', 1 FROM tasks")
    db.execute("ANALYZE schedules, tasks, schedule_skips")
    look = firing.look(limit=1000)
    plan = _plan(db, look)
    assert "Index Scan using schedules_next" in plan
    assert "Index Scan using schedules_waiting" in plan
    assert not re.search("Seq Scan on (schedules|tasks)", plan)
    due = (await leader_db.run(look)).due
    offers = [offer for row in due if (offer := decide(row))]
    assert len(offers) == 100
    plan = _plan(db, firing.fire(term, offers, [uuid4() for _ in offers]))
    assert "Index Scan using schedules_pkey" in plan
    assert not re.search("Seq Scan on (schedules|tasks|schedule_skips)", plan)


def _plan(db: psycopg.Connection, query: Query[Any]) -> str:
    text = f"EXPLAIN {statement(query.name, None)}".encode()
    return "\n".join(row[0] for row in db.execute(text, query.parameters))


async def test_a_thousand_due_schedules_take_one_look_and_one_statement_that_fires(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term, make: Make
) -> None:
    make("s0")
    db.execute(
        "INSERT INTO schedules (name, task, spec, template, next_slot) "
        "SELECT 's' || n, task, spec || jsonb_build_object('args', n), template, next_slot "
        "FROM schedules, generate_series(1, 999) AS n"
    )
    counting = Counting(config, "schedules")
    await Scheduler(counting, counting, Leadership(config, leader_db, Events()), Events()).fire_due(term)
    assert counting.queries == 2
    assert db.execute("SELECT count(DISTINCT schedule), count(*) FROM tasks").fetchone() == (1000, 1000)


async def test_schedules_of_one_rule_that_are_due_together_are_decided_once(
    scheduler: Scheduler, term: Term, db: psycopg.Connection, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = make("a", args={"tenant": 1}, queue="one")
    spec = Schedule(every=HOUR, anchor=slot, args={"tenant": 2}, priority=7).to_json()
    db.execute(
        "INSERT INTO schedules (name, task, spec, template, next_slot) "
        "SELECT 'b', task, %s, template, next_slot FROM schedules",
        [json.dumps(spec)],
    )
    decided: list[datetime] = []

    def counting(schedule: Schedule, stored_slot: datetime, now: datetime) -> Due:
        decided.append(stored_slot)
        return due(schedule, stored_slot, now)

    monkeypatch.setattr("tasklib.maintenance.schedules.due", counting)
    await scheduler.fire_due(term)
    assert decided == [slot]
    assert slots_of(db, "a") == slots_of(db, "b") == [slot]


async def test_a_fleet_without_schedules_opens_no_connection_for_them(
    config: Config, leader_db: ReconnectingConnection, term: Term, make: Make
) -> None:
    own = Counting(config, "schedules")
    scheduler = Scheduler(leader_db, own, Leadership(config, leader_db, Events()), Events())
    await scheduler.fire_due(term)
    assert own.queries == 0
    make()
    await scheduler.fire_due(term)
    assert own.queries == 1


class Counting(ReconnectingConnection):
    queries = 0

    async def run(self, query: Any, then: Any = None) -> Any:
        self.queries += 1
        return await super().run(query, then)


async def test_more_due_schedules_than_one_statement_takes_are_all_fired(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make
) -> None:
    make("s0")
    db.execute(
        "INSERT INTO schedules (name, task, spec, template, next_slot) "
        "SELECT 's' || n, task, spec, template, next_slot FROM schedules, generate_series(1, 1500) AS n"
    )
    while not await scheduler.fire_due(term):
        pass
    assert db.execute("SELECT count(DISTINCT schedule), count(*) FROM tasks").fetchone() == (1501, 1501)


async def test_what_was_fired_and_skipped_is_counted_with_its_lateness(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make
) -> None:
    make(ago=timedelta(hours=2, seconds=20))
    await scheduler.fire_due(term)
    rows = db.execute("SELECT name, outcome, reason, count FROM stats_deltas ORDER BY outcome").fetchall()
    assert rows == [
        ("report", "slot_fired", "", 1),
        ("", "slot_lateness", "", 1),
        ("report", "slot_skipped", "superseded", 2),
    ]
    row = db.execute("SELECT waited, waits FROM stats_deltas WHERE outcome = 'slot_lateness'").fetchone()
    assert row is not None
    assert row[0] >= 20
    assert (sum(row[1]), len(row[1])) == (1, 16)
    assert sum(row[1][:11]) == 0, "no bucket up to 10 s has it"

"""What the doctor finds in the fleet and in what waits for it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tasklib import Config
from tasklib.db.database import Database
from tasklib.doctor import waiting
from tasklib.doctor.findings import Severity
from tasklib.store import fleet
from tests.doctor.conftest import Look


def register(config: Config, worker: str, **served: Any) -> None:
    database = Database(config)
    given: dict[str, Any] = {
        "queues": None,
        "names": ["mail"],
        "capabilities": [],
        "capacity": 4,
        "version": "1.0",
        **served,
    }
    database.run(fleet.register(worker, host="here", pid=1, heartbeat_timeout=90, **(given | served)))
    database.close()


def test_no_worker_is_critical_once_tasks_wait(look: Look, db: psycopg.Connection) -> None:
    assert look("workers")["no_workers"].severity is Severity.WARNING
    db.execute("INSERT INTO tasks (name) VALUES ('mail')")
    finding = look("workers")["no_workers"]
    assert finding.severity is Severity.CRITICAL
    assert "tasklib worker" in finding.action


def test_a_fleet_without_a_leader_and_of_two_versions(look: Look, config: Config, db: psycopg.Connection) -> None:
    register(config, "a", version="1.0")
    register(config, "b", version="1.1")
    found = look("workers")
    assert found["mixed_versions"].details["versions"] == {"1.0": ["a"], "1.1": ["b"]}
    assert "tasklib workers drain a" in found["mixed_versions"].action
    assert found["no_leader"].severity is Severity.WARNING
    db.execute("UPDATE workers SET version = '1.1'")
    db.execute("INSERT INTO leadership (holder, expires_at) VALUES ('a', now() + interval '1 hour')")
    assert look("workers")["workers"].severity is Severity.OK


def test_workers_that_fell_silent_and_are_not_declared_dead(look: Look, config: Config, db: psycopg.Connection) -> None:
    register(config, "a")
    register(config, "silent")
    db.execute("INSERT INTO leadership (holder, expires_at) VALUES ('a', now() + interval '1 hour')")
    db.execute("UPDATE workers SET last_heartbeat = now() - interval '1 hour' WHERE id = 'silent'")
    assert look("workers")["silent_workers"].details["workers"] == ["silent"]


def test_leases_that_ended_and_were_not_rescued(look: Look, db: psycopg.Connection) -> None:
    assert look("leases")["ended_leases"].severity is Severity.OK
    db.execute(
        "INSERT INTO tasks (name, state, worker_id, locked_until) "
        "SELECT 'mail', 'running', 'gone', now() - interval '1 hour' FROM generate_series(1, 3)"
    )
    finding = look("leases")["ended_leases"]
    assert (finding.severity, finding.details["count"]) == (Severity.CRITICAL, 3)
    assert "1 h ago" in finding.seen


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"name": "unknown"}, "'unknown' (queue 'default')"),
        ({"name": "mail", "queue": "far"}, "'mail' (queue 'far')"),
        ({"name": "mail", "required_capabilities": ["gpu", 'a "b'], "queue": "q"}, "needs gpu+"),
    ],
)
def test_tasks_that_no_live_worker_may_take(
    look: Look, config: Config, db: psycopg.Connection, columns: dict[str, object], said: str
) -> None:
    register(config, "a", queues=["default", "q"])
    db.execute("INSERT INTO tasks (name, scheduled_at) VALUES ('mail', now()), ('unknown', now() + interval '1 day')")
    assert look("tasks without a worker")["unserved_tasks"].severity is Severity.OK
    marks = ", ".join(f"%({name})s" for name in columns)
    for _ in range(2):
        db.execute(f"INSERT INTO tasks ({', '.join(columns)}) VALUES ({marks})".encode(), columns)
    finding = look("tasks without a worker")["unserved_tasks"]
    assert (finding.severity, finding.details["count"]) == (Severity.WARNING, 2)
    assert said in finding.seen


def test_a_pause_is_a_warning_once_it_holds_something_back(look: Look, db: psycopg.Connection) -> None:
    assert look("pauses")["paused"].severity is Severity.OK
    db.execute("INSERT INTO pauses (kind, value) VALUES ('name', 'mail')")
    assert look("pauses")["paused"].severity is Severity.NOTE
    db.execute("INSERT INTO tasks (name, queue) VALUES ('mail', 'a'), ('mail', 'b'), ('other', 'a')")
    finding = look("pauses")["paused"]
    assert (finding.severity, finding.details["count"]) == (Severity.WARNING, 2)
    assert finding.action.endswith("tasklib resume --name mail")


def test_too_many_lanes(look: Look, db: psycopg.Connection) -> None:
    assert look("lanes")["lanes"].severity is Severity.OK
    db.execute(
        "INSERT INTO tasks (name, queue) SELECT 'mail', 'customer ' || i FROM generate_series(1, %s) AS i",
        (waiting.MOST_LANES + 1,),
    )
    finding = look("lanes")["too_many_lanes"]
    assert (finding.severity, finding.details["lanes"]) == (Severity.WARNING, waiting.MOST_LANES + 1)

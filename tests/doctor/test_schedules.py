"""What the doctor says of schedules."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tasklib.doctor.findings import Severity
from tasklib.schedules import Schedule


def make(db: psycopg.Connection, name: str, task: str, when: str, spec: dict[str, Any] | None = None) -> None:
    db.execute(
        "INSERT INTO schedules (name, task, spec, template, next_slot) VALUES (%s, %s, %s, '{}', now() + %s::interval)",
        (name, task, json.dumps(spec or Schedule("@daily").to_json()), when),
    )


def test_without_schedules_and_with_good_ones_there_is_nothing_to_say(look: Any, db: psycopg.Connection) -> None:
    assert look("schedules")["schedules"].severity is Severity.OK
    db.execute("INSERT INTO workers (id, names) VALUES ('w', '{report}')")
    make(db, "nightly", "report", "1 h")
    assert look("schedules").keys() == {"schedules"}


@pytest.mark.parametrize(
    ("code", "task", "when", "spec", "words"),
    [
        ("late_schedules", "report", "-5 min", None, "should have run up to 5 min"),
        ("unserved_schedules", "export", "1 h", None, "nightly (export)"),
        ("unreadable_schedules", "report", "1 h", {"cron": ["@daily"], "timezone": "Mars/Olympus"}, "Mars/Olympus"),
    ],
)
def test_a_schedule_that_will_not_run_is_named(
    look: Any, db: psycopg.Connection, code: str, task: str, when: str, spec: dict[str, Any] | None, words: str
) -> None:
    db.execute("INSERT INTO workers (id, names) VALUES ('w', '{report}')")
    make(db, "nightly", task, when, spec)
    [found] = look("schedules").values()
    assert (found.code, found.severity) == (code, Severity.WARNING)
    assert words in found.seen


def test_different_time_zones_in_the_fleet_are_told_with_their_hosts(look: Any, db: psycopg.Connection) -> None:
    make(db, "nightly", "report", "1 h")
    db.execute("INSERT INTO worker_registrations (id, host, names, tzdata) VALUES ('a', 'web1', '{report}', '2026a')")
    db.execute("INSERT INTO worker_registrations (id, host, names) VALUES ('http', 'web9', '{report}')")
    assert look("schedules").keys() == {"schedules"}
    db.execute("INSERT INTO worker_registrations (id, host, tzdata) VALUES ('b', 'web2', '2025c')")
    found = look("schedules")["differing_tzdata"]
    assert "tzdata 2025c on web2; tzdata 2026a on web1" in found.seen
    db.execute("UPDATE worker_registrations SET reported_status = 'dead' WHERE id = 'b'")
    assert look("schedules").keys() == {"schedules"}


def test_paused_schedules_are_left_alone(look: Any, db: psycopg.Connection) -> None:
    make(db, "nightly", "export", "-1 h")
    db.execute("UPDATE schedules SET paused_at = now()")
    assert look("schedules").keys() == {"schedules"}

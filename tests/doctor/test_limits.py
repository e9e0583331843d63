"""What the doctor finds about limits."""

from __future__ import annotations

import json

import psycopg
import pytest

from tasklib.doctor.findings import Severity
from tests.doctor.conftest import Look
from tests.store.test_limited_claim import lane, set_limit

RUNS = "state = 'running', worker_id = 'w', lease_token = 1, locked_until = now() + interval '1 day'"


def hold(db: psycopg.Connection, limit: str, since: str, key: str = "") -> str:
    """A task that has held a place for so long."""
    row = db.execute(
        f"INSERT INTO tasks (name, lane) VALUES ('charge', {lane('lstripe=')}) RETURNING id::text"
    ).fetchone()
    assert row is not None
    db.execute(f"UPDATE tasks SET {RUNS}, started_at = now() - %s::interval WHERE id = %s", [since, row[0]])
    db.execute("INSERT INTO places (task, limit_name, key, token) VALUES (%s, %s, %s, 1)", [row[0], limit, key])
    return str(row[0])


def wait(db: psycopg.Connection) -> None:
    db.execute(f"INSERT INTO tasks (name, lane) VALUES ('charge', {lane('lstripe=')})".encode())


def test_limits_with_room_are_fine(look: Look, db: psycopg.Connection) -> None:
    assert look("limits")["limits"].seen == "No limits."
    set_limit(db, "stripe", max_running=2)
    hold(db, "stripe", "1 hour")
    wait(db)
    finding = look("limits")["limits"]
    assert (finding.severity, finding.seen) == (Severity.OK, "1 limit, none in the way for long.")


def test_a_full_limit_that_gives_no_place_is_found_with_the_task_that_holds_it(
    look: Look, db: psycopg.Connection
) -> None:
    set_limit(db, "stripe", max_running=2)
    oldest = hold(db, "stripe", "3 hours")
    hold(db, "stripe", "2 hours")
    assert look("limits").keys() == {"limits"}  # nothing waits
    wait(db)
    finding = look("limits")["limit_full"]
    assert finding.severity is Severity.WARNING
    assert "no place in it was given for 2 h" in finding.seen
    assert finding.action.endswith(f"tasklib explain {oldest}")
    assert (finding.details["running"], finding.details["waiting"]) == (2, 1)


def test_a_full_limit_whose_places_change_hands_is_fine(look: Look, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=2)
    hold(db, "stripe", "3 hours")
    hold(db, "stripe", "1 minute")
    wait(db)
    assert look("limits").keys() == {"limits"}


def test_a_limit_of_none_at_a_time_with_tasks_behind_it_is_found(look: Look, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=0)
    assert look("limits").keys() == {"limits"}
    wait(db)
    finding = look("limits")["limit_closed"]
    assert finding.action == "tasklib limit set stripe --max-running N"


def test_a_blocked_limit_is_a_note(look: Look, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=5)
    wait(db)
    db.execute("INSERT INTO limit_states (limit_name, blocked_until) VALUES ('stripe', now() + interval '1 hour')")
    assert look("limits")["limit_blocked"].severity is Severity.NOTE


@pytest.mark.parametrize("declared", [None, {"max_running": 5}])
def test_a_limit_that_functions_name_and_that_bounds_nothing_is_found(
    look: Look, db: psycopg.Connection, declared: dict[str, int] | None
) -> None:
    db.execute('INSERT INTO limited_names VALUES (\'charge\', \'[{"limit": "stripe", "key": null, "cost": 1}]\')')
    if declared:
        db.execute("INSERT INTO limits (name, declared) VALUES ('stripe', %s)", [json.dumps(declared)])
    finding = look("limits")["limit_missing"]
    assert ("tasklib limit reset stripe" in finding.action) is (declared is not None)
    assert finding.details["functions"] == ["charge"]
    set_limit(db, "stripe:acme", max_running=1)  # one key has bounds
    assert "limit_missing" not in look("limits")

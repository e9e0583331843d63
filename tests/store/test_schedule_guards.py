"""Each guard of the statements about schedules on its own: what was decided from an older state changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tasklib import Config
from tasklib.db.database import Database
from tasklib.maintenance.schedules import decide
from tasklib.schedules import Schedule, Skipped
from tasklib.store import firing, fleet, schedules
from tasklib.store.firing import DueSchedule, Fired, Offer, Run
from tasklib.store.fleet import Term
from tasklib.store.schedules import Declared, ScheduleInfo

HOUR = timedelta(hours=1)
SLOT = datetime(2026, 11, 16, 3, tzinfo=UTC)
TEMPLATE: dict[str, Any] = {
    "queue": "default",
    "kwargs": {},
    "max_retries": 3,
    "timeout_seconds": None,
    "priority": 0,
    "tags": {},
    "required_capabilities": [],
}
NOTHING = Fired(frozenset(), [])
Make = Callable[..., None]


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    database = Database(config)
    yield database
    database.close()


@pytest.fixture
def term(database: Database) -> Term:
    term = database.run(fleet.lead("leader", 60))
    assert term is not None
    return term


@pytest.fixture
def make(db: psycopg.Connection) -> Make:
    def make(name: str, **columns: Any) -> None:
        values = {
            "name": name,
            "task": "report",
            "spec": json.dumps(Schedule(every=HOUR).to_json()),
            "template": json.dumps(TEMPLATE),
            "next_slot": SLOT,
            **columns,
        }
        marks = ", ".join(f"%({column})s" for column in values)
        db.execute(f"INSERT INTO schedules ({', '.join(values)}) VALUES ({marks})".encode(), values)

    return make


def _read(database: Database, name: str = "a") -> DueSchedule:
    found = {row.name: row for row in database.run(firing.look(limit=10)).due}
    return found[name]


def _row(db: psycopg.Connection, name: str, columns: str) -> Any:
    return db.execute(f"SELECT {columns} FROM schedules WHERE name = %s".encode(), [name]).fetchone()


def _offer(read: DueSchedule, *skips: Skipped) -> Offer:
    return Offer(read, SLOT + HOUR, runs=[Run(SLOT, SLOT)], skips=skips, last_slot=SLOT)


def test_what_is_fired_moves_its_own_schedule_and_no_other(database: Database, term: Term, make: Make, db: Any) -> None:
    make("a")
    make("b")
    fired = database.run(firing.fire(term, [_offer(_read(database))], [uuid4()]))
    assert fired.schedules == {"a"}
    assert _row(db, "a", "next_slot, fired") == (SLOT + HOUR, 1)
    assert _row(db, "b", "next_slot, fired") == (SLOT, 0)


@pytest.mark.parametrize(
    "change",
    [
        "next_slot = next_slot + interval '1 h'",
        "waiting_slot = next_slot - interval '1 h'",
        "revision = revision + 1",
        "paused_at = now()",
        "retired_at = now()",
    ],
)
def test_an_offer_to_a_schedule_that_was_changed_is_refused(
    database: Database, term: Term, make: Make, db: psycopg.Connection, change: str
) -> None:
    make("a")
    offer = _offer(_read(database))
    db.execute(f"UPDATE schedules SET {change}".encode())
    before = _row(db, "a", "*")
    assert database.run(firing.fire(term, [offer], [uuid4()])) == NOTHING
    assert _row(db, "a", "*") == before
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (0,)


def test_a_slot_that_waited_is_run_by_one_of_two_leaders(
    database: Database, term: Term, make: Make, db: psycopg.Connection
) -> None:
    spec = Schedule(every=HOUR, overlap="wait_one").to_json()
    make("a", spec=json.dumps(spec), waiting_slot=SLOT, next_slot=datetime.now(UTC) + HOUR)
    offers = [decide(_read(database)) for _ in range(2)]
    answers = [database.run(firing.fire(term, [offer], [uuid4()])) for offer in offers if offer]
    assert [len(answer.schedules) for answer in answers] == [1, 0]
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (1,)


def test_only_an_unfinished_run_of_the_schedule_itself_counts_as_running(
    database: Database, make: Make, db: psycopg.Connection
) -> None:
    make("a", spec=json.dumps(Schedule(every=HOUR, overlap="skip").to_json()))
    db.execute("INSERT INTO tasks (name, schedule) VALUES ('report', 'another')")
    db.execute("INSERT INTO tasks (name, schedule, state, completed_at) VALUES ('report', 'a', 'completed', now())")
    assert _read(database).is_running is False
    db.execute("INSERT INTO tasks (name, schedule) VALUES ('report', 'a')")
    assert _read(database).is_running is True


def test_a_finished_run_and_one_that_was_asked_to_stop_are_not_cancelled_again(
    database: Database, term: Term, make: Make, db: psycopg.Connection
) -> None:
    make("a", spec=json.dumps(Schedule(every=HOUR, overlap="cancel_running").to_json()))
    db.execute(
        "INSERT INTO tasks (name, schedule, slot, state, completed_at, worker_id, locked_until, cancel_requested_at) "
        "VALUES ('report', 'a', now() - interval '1 h', 'completed', now(), NULL, NULL, NULL), "
        "('report', 'a', now() - interval '2 h', 'running', NULL, 'w', now() + interval '1 h', now())"
    )
    before = db.execute("SELECT xmin, * FROM tasks ORDER BY slot").fetchall()
    offer = decide(_read(database))
    assert offer is not None
    assert offer.cancel_running
    database.run(firing.fire(term, [offer], [uuid4()]))
    after = db.execute("SELECT xmin, * FROM tasks WHERE id = ANY(%s) ORDER BY slot", ([row[1] for row in before],))
    assert after.fetchall() == before


def test_a_cancelled_run_of_a_flow_arrives_at_its_gates(
    database: Database, term: Term, make: Make, db: psycopg.Connection
) -> None:
    make("a", spec=json.dumps(Schedule(every=HOUR, overlap="cancel_running").to_json()))
    gate, waits, runs = uuid4(), uuid4(), uuid4()
    db.execute(
        "INSERT INTO tasks (id, name, schedule, slot, state, worker_id, locked_until, flow, node, reports_to) VALUES "
        "(%s, 'report', 'a', now() - interval '1 h', 'pending', NULL, NULL, %s, 'one', %s), "
        "(%s, 'report', 'a', now() - interval '2 h', 'running', 'w', now() + interval '1 h', %s, 'two', %s)",
        (waits, uuid4(), [gate], runs, uuid4(), [gate]),
    )
    offer = decide(_read(database))
    assert offer is not None
    database.run(firing.fire(term, [offer], [uuid4()]))
    assert db.execute("SELECT gate, node, failed, culprit FROM arrivals").fetchall() == [(gate, "one", 1, waits)]


def _skips(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    return db.execute(
        "SELECT schedule, first_slot, last_slot, reason, count FROM schedule_skips ORDER BY schedule, last_slot"
    ).fetchall()


@pytest.mark.parametrize(
    ("known", "becomes"),
    [
        (("a", SLOT - HOUR, "overlap"), [("a", SLOT - HOUR, SLOT, "overlap", 2)]),
        (("a", SLOT - HOUR, "missed"), None),
        (("a", SLOT - 2 * HOUR, "overlap"), None),
        (("b", SLOT - HOUR, "overlap"), None),
    ],
    ids=["lengthened", "another reason", "not the last slot", "another schedule"],
)
def test_a_record_of_skipped_slots_is_lengthened_only_by_its_neighbour(
    database: Database,
    term: Term,
    make: Make,
    db: psycopg.Connection,
    known: tuple[str, datetime, str],
    becomes: list[Any] | None,
) -> None:
    schedule, slot, reason = known
    make("a", last_slot=SLOT - HOUR)
    db.execute("INSERT INTO schedule_skips VALUES (%s, %s, %s, %s, 1)", (schedule, slot, slot, reason))
    read = _read(database)
    offer = Offer(read, SLOT + HOUR, skips=[Skipped("overlap", 1, SLOT, SLOT)], last_slot=SLOT)
    database.run(firing.fire(term, [offer], []))
    apart = sorted([(schedule, slot, slot, reason, 1), ("a", SLOT, SLOT, "overlap", 1)])
    assert _skips(db) == (becomes or apart)


def test_a_skip_that_does_not_begin_at_the_next_slot_is_a_record_of_its_own(
    database: Database, term: Term, make: Make, db: psycopg.Connection
) -> None:
    make("a", last_slot=SLOT - HOUR)
    known = ("a", SLOT - HOUR, SLOT - HOUR, "overlap", 1)
    db.execute("INSERT INTO schedule_skips VALUES (%s, %s, %s, %s, %s)", known)
    later = Skipped("overlap", 1, SLOT + HOUR, SLOT + HOUR)
    offer = Offer(_read(database), SLOT + 2 * HOUR, runs=[Run(SLOT, SLOT)], skips=[later], last_slot=SLOT + HOUR)
    database.run(firing.fire(term, [offer], [uuid4()]))
    assert _skips(db) == [known, ("a", SLOT + HOUR, SLOT + HOUR, "overlap", 1)]


def test_only_records_that_are_old_themselves_are_forgotten(
    database: Database, term: Term, db: psycopg.Connection
) -> None:
    for name, slot, age in (("a", SLOT, "9 days"), ("a", SLOT + HOUR, "1 day"), ("b", SLOT, "1 day")):
        row = (name, slot, slot, age)
        db.execute("INSERT INTO schedule_skips VALUES (%s, %s, %s, 'overlap', 1, now() - %s::interval)", row)
    assert database.run(firing.forget_skips(Term("leader", term.number - 1), 86400 * 5, 10)) == 0
    assert database.run(firing.forget_skips(term, 86400 * 5, 10)) == 1
    assert [row[:2] for row in _skips(db)] == [("a", SLOT + HOUR), ("b", SLOT)]


# ---- operators and deploys ----


def _known(database: Database, name: str = "a") -> ScheduleInfo:
    found = database.run(schedules.get(name))
    assert found is not None
    return found


def _declared(schedule: Schedule, *, deployed_at: datetime | None = None) -> Declared:
    return Declared("a", "report", schedule, TEMPLATE, module="jobs", deployed_at=deployed_at)


def test_a_change_concerns_one_schedule_and_the_revision_that_was_read(
    database: Database, make: Make, db: psycopg.Connection
) -> None:
    make("a")
    make("b", last_slot=SLOT)
    known, other = _known(database), _row(db, "b", "*")
    change = schedules.change(known, _declared(Schedule("@daily")), SLOT + HOUR, [], by="me")
    assert database.run(change)
    assert _row(db, "b", "*") == other
    again = schedules.change(known, _declared(Schedule("@weekly")), SLOT + 2 * HOUR, [], by="me")
    assert not database.run(again), "somebody else has changed it meanwhile"
    assert _row(db, "a", "next_slot, revision") == (SLOT + HOUR, 2)


@pytest.mark.parametrize("slot", ["next_slot", "waiting_slot"])
def test_a_change_does_not_take_a_slot_for_lost_that_was_decided_after_it_was_read(
    database: Database, make: Make, db: psycopg.Connection, slot: str
) -> None:
    make("a", waiting_slot=SLOT - HOUR)
    gone = [Skipped("changed", 1, SLOT, SLOT)]
    change = schedules.change(_known(database), _declared(Schedule("@daily")), SLOT + 5 * HOUR, gone, by="me")
    db.execute(f"UPDATE schedules SET {slot} = {slot} + interval '1 h'".encode())  # which firing does
    assert not database.run(change)
    assert _skips(db) == []


def test_what_a_change_skips_follows_on_the_schedules_own_last_slot(
    database: Database, make: Make, db: psycopg.Connection
) -> None:
    make("another", last_slot=SLOT - 5 * HOUR)
    make("a", last_slot=SLOT - HOUR)
    db.execute("INSERT INTO schedule_skips VALUES ('a', %(at)s, %(at)s, 'changed', 1)", {"at": SLOT - HOUR})
    gone = [Skipped("changed", 1, SLOT, SLOT)]
    assert database.run(schedules.change(_known(database), _declared(Schedule("@daily")), SLOT + HOUR, gone, by="me"))
    assert _skips(db) == [("a", SLOT - HOUR, SLOT, "changed", 2)]


def test_a_pause_concerns_one_schedule_and_only_another_note_changes_it(
    database: Database, make: Make, db: psycopg.Connection
) -> None:
    make("a")
    make("b")
    assert database.run(schedules.pause("a", "first", by="me"))
    assert not database.run(schedules.pause("a", "first", by="you"))
    assert not database.run(schedules.pause("a", None, by="you"))
    assert _row(db, "a", "paused_by, pause_note, revision") == ("me", "first", 2)
    assert database.run(schedules.pause("a", "second", by="you"))
    assert _row(db, "a", "paused_by, pause_note, revision") == ("you", "second", 3)
    assert _row(db, "b", "paused_at, revision") == (None, 1)


DEPLOYED = datetime(2026, 11, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("columns", "is_retired"),
    [
        ({}, True),
        ({"deployed_at": DEPLOYED}, False),
        ({"deployed_at": DEPLOYED + HOUR}, False),
        ({"module": "other"}, False),
        ({"name": "kept"}, False),
        ({"retired_at": DEPLOYED}, False),
    ],
    ids=["older", "same deploy", "newer deploy", "another module", "still declared", "already retired"],
)
def test_a_deploy_retires_what_an_older_one_had_in_its_modules(
    database: Database, make: Make, columns: dict[str, Any], is_retired: bool
) -> None:
    make("api")
    make(**{"name": "a", "source": "code", "module": "jobs", "deployed_at": DEPLOYED - HOUR, **columns})
    retired = database.run(schedules.retire(["kept"], ["jobs"], DEPLOYED, by="me"))
    assert retired == (["a"] if is_retired else [])


def test_a_stamp_of_a_deploy_only_grows_and_only_for_what_it_has_read(
    database: Database, make: Make, db: psycopg.Connection
) -> None:
    for name, at in (("a", DEPLOYED - HOUR), ("b", DEPLOYED + HOUR), ("c", DEPLOYED - HOUR), ("d", DEPLOYED - HOUR)):
        make(name, source="code", module="jobs", deployed_at=at)
    make("api")
    db.execute("UPDATE schedules SET revision = 2 WHERE name = 'd'")
    unchanged = dict.fromkeys(["a", "b", "api", "d"], 1)
    assert database.run(schedules.deployed(unchanged, DEPLOYED)) == ["a"]
    found = db.execute("SELECT name, deployed_at FROM schedules WHERE source = 'code' ORDER BY name").fetchall()
    before = DEPLOYED - HOUR
    assert found == [("a", DEPLOYED), ("b", DEPLOYED + HOUR), ("c", before), ("d", before)]


@pytest.mark.parametrize("stamp", [DEPLOYED, DEPLOYED + HOUR], ids=["same", "newer"])
def test_a_deploy_changes_nothing_that_one_of_this_or_a_newer_stamp_has_taken_meanwhile(
    database: Database, make: Make, db: psycopg.Connection, stamp: datetime
) -> None:
    make("a", source="code", module="jobs", deployed_at=DEPLOYED - HOUR)
    known = _known(database)
    db.execute("UPDATE schedules SET deployed_at = %s", [stamp])
    wanted = _declared(Schedule("@daily"), deployed_at=DEPLOYED)
    assert not database.run(schedules.change(known, wanted, SLOT + HOUR, [], by="me"))
    assert _row(db, "a", "revision, deployed_at") == (1, stamp)

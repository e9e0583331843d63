"""The leader fires schedules: every slot once, or on record as skipped."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tasklib import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import DutyFailed, Event, Events, SlotsFired, SlotsSkipped
from tasklib.maintenance.leader import Leadership
from tasklib.maintenance.retention import delete_expired
from tasklib.maintenance.schedules import Scheduler, decide
from tasklib.store import firing, fleet
from tasklib.store.fleet import Term
from tests.maintenance.conftest import HOUR, Make, slots_of


def _skips(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    return db.execute("SELECT reason, count, first_slot, last_slot FROM schedule_skips ORDER BY last_slot").fetchall()


async def test_a_due_slot_becomes_a_task_with_everything_its_row_says(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make, seen: list[Event]
) -> None:
    slot = make()
    assert await scheduler.fire_due(term) == 0
    row = db.execute(
        "SELECT name, queue, kwargs, max_retries, timeout_seconds, priority, tags, required_capabilities, schedule, "
        "slot, state, scheduled_at > slot FROM tasks"
    ).fetchall()
    assert row == [
        ("report", "reports", {"day": 1}, 2, 60, 5, {"team": "a"}, ["gpu"], "nightly", slot, "pending", True)
    ]
    stored = db.execute("SELECT next_slot, last_slot, fired, last_task = (SELECT id FROM tasks) FROM schedules")
    assert stored.fetchall() == [(slot + HOUR, slot, 1, True)]
    [event] = seen
    assert isinstance(event, SlotsFired)


async def test_nothing_is_fired_before_its_time_and_the_leader_sleeps_until_then(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make
) -> None:
    make("far", ago=-HOUR)
    assert await scheduler.fire_due(term) > 0.5
    make("soon", ago=-timedelta(seconds=0.9))
    assert 0 <= await scheduler.fire_due(term) <= 0.9
    assert slots_of(db, "soon") == []


async def test_a_slot_is_looked_at_ahead_of_its_time_and_fired_no_earlier(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklib.maintenance.schedules.AHEAD_SECONDS", 3600.0)
    first = make("first", ago=-timedelta(seconds=1.5))
    make("second", ago=-timedelta(seconds=1000))
    assert await scheduler.fire_due(term) == 0, "it has waited for the first one"
    assert (slots_of(db, "first"), slots_of(db, "second")) == ([first], [])
    assert db.execute("SELECT count(*) FROM tasks WHERE created_at < slot OR scheduled_at < slot").fetchall() == [(0,)]


async def test_what_is_decided_ahead_of_its_time_is_not_fired_before_it(
    db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term, make: Make
) -> None:
    make(ago=-timedelta(seconds=60))
    [row] = (await leader_db.run(firing.look(limit=10, ahead_seconds=120))).due
    assert row.is_ahead
    assert row.next_slot is not None
    offer = decide(row._replace(now=row.next_slot))
    assert offer is not None
    fired = await leader_db.run(firing.fire(term, [offer], [uuid4()]))
    assert (fired.schedules, fired.tasks) == (frozenset(), [])


@pytest.mark.parametrize("policy", [{"overlap": "skip"}, {"pause_after": 3}])
async def test_what_depends_on_its_runs_is_not_looked_at_ahead_of_its_time(
    leader_db: ReconnectingConnection, make: Make, policy: dict[str, Any]
) -> None:
    make(ago=-timedelta(seconds=60), **policy)
    assert (await leader_db.run(firing.look(limit=10, ahead_seconds=120))).due == []


async def test_a_change_ends_the_wait_for_a_slot(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklib.maintenance.schedules.AHEAD_SECONDS", 3600.0)
    make(ago=-timedelta(seconds=1000))
    scheduler.look()
    assert await scheduler.fire_due(term) == 0
    assert slots_of(db, "nightly") == []


async def test_a_leader_whose_term_is_over_fires_nothing(
    db: psycopg.Connection, leader_db: ReconnectingConnection, scheduler: Scheduler, term: Term, make: Make
) -> None:
    slot = make()
    await scheduler.fire_due(Term(term.holder, term.number - 1))
    await scheduler.fire_due(Term("somebody else", term.number))
    assert slots_of(db) == []
    assert db.execute("SELECT next_slot FROM schedules").fetchone() == (slot,)


async def test_tasks_of_many_slots_are_made_in_several_statements(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklib.maintenance.schedules.MOST_RUNS", 3)
    for name in ("a", "b", "c"):
        make(name, ago=timedelta(hours=1, minutes=1), catch_up="all")
    await scheduler.fire_due(term)
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (6,)


async def test_two_leaders_with_the_same_slot_make_one_task(
    db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term, make: Make
) -> None:
    make()
    [row] = (await leader_db.run(firing.look(limit=10))).due
    first, second = decide(row), decide(row)
    assert first is not None
    assert second is not None
    assert len((await leader_db.run(firing.fire(term, [first], [uuid4()]))).tasks) == 1
    assert await leader_db.run(firing.fire(term, [second], [uuid4()])) == (frozenset(), [])
    assert len(slots_of(db)) == 1


@pytest.mark.parametrize("change", ["revision = revision + 1", "paused_at = now()", "retired_at = now()"])
async def test_what_was_decided_from_an_older_revision_is_not_done(
    db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term, make: Make, change: str
) -> None:
    make()
    [row] = (await leader_db.run(firing.look(limit=10))).due
    offer = decide(row)
    assert offer is not None
    db.execute(f"UPDATE schedules SET {change}")  # type: ignore[arg-type]
    assert await leader_db.run(firing.fire(term, [offer], [uuid4()])) == (frozenset(), [])
    assert slots_of(db) == []


async def test_a_slot_that_has_a_task_gets_no_second_one_even_if_the_cursor_went_back(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make
) -> None:
    slot = make()
    await scheduler.fire_due(term)
    db.execute("UPDATE schedules SET next_slot = %s, last_slot = NULL", (slot,))
    await scheduler.fire_due(term)
    assert slots_of(db) == [slot]
    assert db.execute("SELECT next_slot, fired FROM schedules").fetchone() == (slot + HOUR, 1)


async def test_paused_and_retired_schedules_are_not_fired(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make
) -> None:
    make("paused")
    make("retired")
    db.execute("UPDATE schedules SET paused_at = now() WHERE name = 'paused'")
    db.execute("UPDATE schedules SET retired_at = now() WHERE name = 'retired'")
    await scheduler.fire_due(term)
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (0,)


async def test_missed_slots_are_on_record_with_their_reason_and_told(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make, seen: list[Event]
) -> None:
    slot = make(ago=timedelta(hours=30, minutes=1))
    await scheduler.fire_due(term)
    assert slots_of(db) == [slot + 30 * HOUR]
    assert _skips(db) == [
        ("too_old", 7, slot, slot + 6 * HOUR),
        ("superseded", 23, slot + 7 * HOUR, slot + 29 * HOUR),
    ]
    assert db.execute("SELECT skipped FROM schedules").fetchone() == (30,)
    assert [event.reason for event in seen if isinstance(event, SlotsSkipped)] == ["too_old", "superseded"]


async def test_all_missed_slots_are_made_up_for_in_their_order(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make
) -> None:
    slot = make(ago=timedelta(hours=3, minutes=1), catch_up="all")
    await scheduler.fire_due(term)
    rows = db.execute("SELECT slot FROM tasks ORDER BY id").fetchall()
    assert [row[0] for row in rows] == [slot + n * HOUR for n in range(4)]


async def test_skip_runs_the_first_of_several_slots_and_leaves_the_others_out(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make
) -> None:
    slot = make(ago=timedelta(hours=2, minutes=1), overlap="skip", catch_up="all")
    await scheduler.fire_due(term)
    assert slots_of(db) == [slot]
    assert _skips(db) == [("overlap", 2, slot + HOUR, slot + 2 * HOUR)]


@pytest.mark.parametrize("state", ["pending", "failed", "running"])
async def test_skip_leaves_a_slot_out_while_an_earlier_run_is_not_finished(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make, state: str
) -> None:
    slot = make(overlap="skip")
    db.execute(
        "INSERT INTO tasks (name, schedule, state, next_retry_at, worker_id, locked_until) "
        "SELECT 'report', 'nightly', %(state)s::text, now(), CASE %(state)s WHEN 'running' THEN 'w' END, "
        "CASE %(state)s WHEN 'running' THEN now() END",
        {"state": state},
    )
    await scheduler.fire_due(term)
    assert slots_of(db) == [None]
    assert _skips(db) == [("overlap", 1, slot, slot)]


async def test_slots_skipped_one_after_the_other_for_one_reason_are_one_record(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make
) -> None:
    slot = make(ago=timedelta(seconds=3.5), every=timedelta(seconds=1), overlap="skip", catch_up="all")
    db.execute("INSERT INTO tasks (name, schedule) VALUES ('report', 'nightly')")
    await scheduler.fire_due(term)
    [(_, before, _, _)] = _skips(db)
    assert before >= 4
    db.execute("SELECT pg_sleep(greatest(0, extract(epoch FROM next_slot - clock_timestamp()))) FROM schedules")
    await scheduler.fire_due(term)
    [(reason, after, first, last)] = _skips(db)
    assert (reason, first) == ("overlap", slot)
    assert after > before
    assert last == slot + timedelta(seconds=after - 1)


async def test_cancel_running_stops_the_run_before_and_begins_the_new_one(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make
) -> None:
    slot = make(overlap="cancel_running")
    db.execute(
        "INSERT INTO tasks (name, schedule, slot, state, worker_id, locked_until) VALUES "
        "('report', 'nightly', %(slot)s - interval '1 h', 'running', 'w', now() + interval '1 h'), "
        "('report', 'nightly', %(slot)s - interval '2 h', 'pending', NULL, NULL), "
        "('report', 'other', %(slot)s - interval '1 h', 'pending', NULL, NULL)",
        {"slot": slot},
    )
    await scheduler.fire_due(term)
    rows = db.execute("SELECT schedule, state, cancel_requested_at IS NOT NULL FROM tasks ORDER BY schedule, slot")
    assert rows.fetchall() == [
        ("nightly", "cancelled", True),
        ("nightly", "running", True),
        ("nightly", "pending", False),
        ("other", "pending", False),
    ]


async def test_wait_one_lets_one_slot_wait_until_the_run_before_is_finished(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make
) -> None:
    slot = make(ago=timedelta(hours=2, minutes=1), overlap="wait_one", catch_up="all")
    db.execute("INSERT INTO tasks (name, schedule) VALUES ('report', 'nightly')")
    await scheduler.fire_due(term)
    assert db.execute("SELECT waiting_slot, next_slot FROM schedules").fetchone() == (slot, slot + 3 * HOUR)
    assert _skips(db) == [("overlap", 2, slot + HOUR, slot + 2 * HOUR)]
    await scheduler.fire_due(term)
    assert slots_of(db) == [None]
    db.execute("UPDATE tasks SET state = 'completed', completed_at = now()")
    await scheduler.fire_due(term)
    assert slots_of(db) == [slot, None]
    assert db.execute("SELECT waiting_slot, next_slot, fired FROM schedules").fetchone() == (None, slot + 3 * HOUR, 1)


async def test_a_schedule_is_paused_after_dead_letters_in_a_row_and_not_for_those_before_it_was_resumed(
    db: psycopg.Connection, leader_db: ReconnectingConnection, scheduler: Scheduler, term: Term, make: Make
) -> None:
    slot = make(pause_after=2)
    for number, state in enumerate(["dead_letter", "dead_letter", "completed"]):
        db.execute(
            "INSERT INTO tasks (name, schedule, slot, state, completed_at) VALUES ('report', 'nightly', %s, %s, now())",
            (slot - (number + 1) * HOUR, state),
        )
    db.execute("UPDATE schedules SET resumed_at = now() + interval '1 s'")
    [row] = (await leader_db.run(firing.look(limit=10))).due
    assert row.keeps_failing is False
    db.execute("UPDATE schedules SET resumed_at = NULL")
    await scheduler.fire_due(term)
    assert db.execute("SELECT paused_at IS NOT NULL, pause_note, paused_by, next_slot FROM schedules").fetchone() == (
        True,
        "2 dead letters in a row",
        "tasklib",
        slot,
    )
    assert slot not in slots_of(db)


async def test_jitter_moves_the_run_and_not_the_slot(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make
) -> None:
    slot = make(jitter=3600 * 20)
    await scheduler.fire_due(term)
    assert slots_of(db) == [slot]
    assert db.execute("SELECT scheduled_at > now() FROM tasks").fetchone() == (True,)


async def test_a_schedule_that_this_leader_can_not_read_keeps_no_other_from_being_fired(
    db: psycopg.Connection, scheduler: Scheduler, term: Term, make: Make, seen: list[Event]
) -> None:
    make("a bad one")
    make("good")
    db.execute("""UPDATE schedules SET spec = '{"moon": "full"}' WHERE name = 'a bad one'""")
    await scheduler.fire_due(term)
    assert len(slots_of(db, "good")) == 1
    assert any(isinstance(event, DutyFailed) and "a bad one" in event.reason for event in seen)
    assert await scheduler.fire_due(term) > 0, "it is left aside for a while"


async def test_records_of_skipped_slots_are_forgotten_after_90_days(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    for name, age in (("old", "91 days"), ("young", "89 days")):
        db.execute(
            "INSERT INTO schedule_skips VALUES (%s, now(), now(), 'overlap', 1, now() - %s::interval)", (name, age)
        )
    assert await delete_expired(leader_db, config, Term("somebody else", 1)) == []
    assert db.execute("SELECT count(*) FROM schedule_skips").fetchone() == (2,)
    await delete_expired(leader_db, config, term)
    assert db.execute("SELECT schedule FROM schedule_skips").fetchall() == [("young",)]


async def test_leaders_that_fire_at_the_same_time_and_change_hands_decide_about_every_slot_once(
    config: Config, db: psycopg.Connection, make: Make
) -> None:
    """Three processes that all believe to lead, one after the other rightly so, while slots are due."""
    first = {
        f"s{n}": make(f"s{n}", ago=timedelta(seconds=200 + n), every=timedelta(seconds=1), catch_up=catch_up)
        for n, catch_up in enumerate(["all", "latest", "none"] * 4)
    }
    control = ReconnectingConnection(config, "control")
    for _ in range(6):
        terms = [await control.run(fleet.lead(holder, 60)) for holder in ("a", "b", "c")]
        [held] = [term for term in terms if term]
        believed = [Term(holder, held.number) for holder in ("a", "b", "c")] + [held, held]
        await asyncio.gather(*(_fire(config, term) for term in believed))
        await control.run(fleet.resign(held.holder))
        # The lead goes to another holder, whose terms are newer.
        db.execute("UPDATE leadership SET holder = 'nobody', expires_at = now() - interval '1 s'")
    control.drop()
    for name, start in first.items():
        row = db.execute("SELECT next_slot, fired, skipped FROM schedules WHERE name = %s", (name,)).fetchone()
        assert row is not None
        passed = [start + n * timedelta(seconds=1) for n in range(int((row[0] - start).total_seconds()))]
        fired = slots_of(db, name)
        skipped = [
            slot
            for first_slot, last_slot in db.execute(
                "SELECT first_slot, last_slot FROM schedule_skips WHERE schedule = %s", (name,)
            )
            for slot in passed
            if first_slot <= slot <= last_slot
        ]
        assert sorted(fired + skipped) == passed
        assert (len(fired), len(skipped)) == (row[1], row[2])


async def _fire(config: Config, term: Term) -> None:
    db = ReconnectingConnection(config, "schedules")
    await Scheduler(db, db, Leadership(config, db, Events()), Events()).fire_due(term)
    db.drop()

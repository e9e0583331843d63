"""Schedules at run time, and those that programs declare."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

import tasklib
from tasklib import (
    AsyncClient,
    Client,
    Config,
    InvalidOption,
    Schedule,
    ScheduleNotFound,
    SyncTaskId,
    TaskExecutionError,
    TaskId,
    task,
)
from tasklib.errors import InvalidTaskFunction, TaskNotFound
from tasklib.tasks import registry

HOUR = timedelta(hours=1)


def _now(db: psycopg.Connection) -> datetime:
    row = db.execute("SELECT now()").fetchone()
    assert row is not None
    now: datetime = row[0]
    return now


def _skips(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    return db.execute("SELECT schedule, reason, count FROM schedule_skips ORDER BY 1, last_slot").fetchall()


def _actions(db: psycopg.Connection) -> list[tuple[str, str]]:
    return db.execute("SELECT action, target FROM audit ORDER BY id").fetchall()


def test_a_schedule_is_made_with_everything_its_tasks_need(client: Client, db: psycopg.Connection, report: Any) -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    made = client.create_schedule(report, Schedule("0 3 * * *", args={"since": since}, priority="low"), name="nightly")
    assert (made.name, made.task, made.source, made.revision) == ("nightly", "report", "api", 1)
    assert made.next_slot is not None
    assert made.next_slot > _now(db) - timedelta(seconds=60)
    assert made.template == {
        "queue": "reports",
        "kwargs": {"since": "2026-01-01T00:00:00Z"},
        "max_retries": 7,
        "timeout_seconds": 900,
        "priority": -10,
        "tags": {"team": "a"},
        "required_capabilities": [],
        "payload_version": None,
    }
    assert replace(client.get_schedule("nightly"), read_at=made.read_at) == made
    assert _actions(db) == [("schedule.create", "nightly")]


def test_a_schedule_without_a_name_has_that_of_its_function(client: Client, report: Any) -> None:
    assert client.create_schedule(report, "@daily").name == "report"
    assert client.create_schedule(report, Schedule("@daily", name="daily")).name == "daily"
    with pytest.raises(InvalidOption, match="there is a schedule named 'report' already"):
        client.create_schedule(report, "@hourly")


def test_what_does_not_fit_the_function_is_refused(client: Client, report: Any) -> None:
    with pytest.raises(TaskExecutionError, match="day"):
        client.create_schedule(report, Schedule("@daily", args={"day": "Monday"}))
    with pytest.raises(TaskNotFound, match="Did you mean 'report'"):
        client.create_schedule("raport", "@daily")
    with pytest.raises(InvalidOption, match="priority"):
        client.create_schedule(report, Schedule("@daily", priority=1000))
    with pytest.raises(InvalidOption, match="no slot from now on"):
        client.create_schedule(report, Schedule("@daily", ends_at=datetime(2020, 1, 1, tzinfo=UTC)))
    assert client.create_schedule("theirs", "@daily", registered_elsewhere=True).task == "theirs"


def test_schedules_are_listed_by_name_in_pages(client: Client, report: Any) -> None:
    for name in ("c", "a", "b"):
        client.create_schedule(report, "@daily", name=name)
    client.pause_schedule("b")
    assert [info.name for info in client.schedules(limit=2)] == ["a", "b"]
    assert [info.name for info in client.schedules(after="b")] == ["c"]
    assert [info.name for info in client.schedules(paused=True)] == ["b"]
    assert client.schedules(task="other") == []


def test_a_changed_schedule_goes_on_from_now_and_never_runs_at_once(
    client: Client, db: psycopg.Connection, report: Any
) -> None:
    client.create_schedule(report, Schedule(every=HOUR), name="nightly")
    db.execute("UPDATE schedules SET next_slot = now() - interval '150 min'")
    changed = client.change_schedule("nightly", cron="*/5 * * * *", timezone="Europe/Berlin", args={"day": 3})
    assert changed.schedule.cron == ("*/5 * * * *",)
    assert changed.schedule.every is None
    assert changed.template["kwargs"] == {"day": 3}
    assert changed.template["queue"] == "reports"
    assert changed.next_slot is not None
    assert changed.next_slot > changed.read_at - timedelta(seconds=1)
    assert changed.revision == 2
    assert [(reason, count) for _, reason, count in _skips(db)] in ([("changed", 3)], [("changed", 4)])
    assert client.change_schedule("nightly", "@hourly").schedule.timezone == "UTC", "a new one replaces all of it"


def test_a_schedule_of_a_function_that_is_not_known_here_keeps_its_options_when_it_is_changed(
    client: Client, report: Any
) -> None:
    client.create_schedule(report, "@daily", name="nightly")
    with registry.isolated():
        changed = client.change_schedule("nightly", cron="@hourly", args={"day": 4}, priority=9)
    assert (changed.template["queue"], changed.template["max_retries"]) == ("reports", 7)
    assert (changed.template["kwargs"], changed.template["priority"]) == ({"day": 4}, 9)


def test_a_change_says_what_is_wrong(client: Client, report: Any) -> None:
    client.create_schedule(report, "@daily", name="nightly")
    with pytest.raises(InvalidOption, match="say what to change"):
        client.change_schedule("nightly")
    with pytest.raises(InvalidOption, match="a schedule has no moon"):
        client.change_schedule("nightly", moon="full")
    with pytest.raises(InvalidOption, match="the minute '61'"):
        client.change_schedule("nightly", cron="61 * * * *")
    with pytest.raises(ScheduleNotFound, match="no schedule is named 'daily'"):
        client.change_schedule("daily", cron="@daily")


def test_a_pause_loses_slots_and_resuming_goes_on_from_now(client: Client, db: psycopg.Connection, report: Any) -> None:
    client.create_schedule(report, Schedule(every=HOUR), name="nightly")
    paused = client.pause_schedule("nightly", "the disk is full")
    assert paused.paused_at is not None
    assert paused.pause_note == "the disk is full"
    again = client.pause_schedule("nightly", "another note")
    assert (again.pause_note, again.paused_at) == ("another note", paused.paused_at)
    db.execute("UPDATE schedules SET next_slot = date_trunc('hour', now()) - interval '2 h'")
    resumed = client.resume_schedule("nightly")
    assert resumed.paused_at is None
    assert resumed.next_slot is not None
    assert resumed.next_slot > resumed.read_at - timedelta(seconds=1)
    assert _skips(db) == [("nightly", "paused", 3)]
    assert client.resume_schedule("nightly").revision == resumed.revision, "there is nothing to resume"
    done = ["schedule.create", "schedule.pause", "schedule.pause", "schedule.resume"]
    assert [action for action, _ in _actions(db)] == done


def test_run_now_makes_a_task_without_a_slot_and_moves_nothing(
    client: Client, db: psycopg.Connection, report: Any
) -> None:
    before = client.create_schedule(report, Schedule("@daily", args={"day": 2}), name="nightly")
    client.pause_schedule("nightly")
    task_id = client.run_schedule("nightly")
    row = db.execute("SELECT id, name, queue, kwargs, schedule, slot FROM tasks").fetchall()
    assert row == [(task_id, "report", "reports", {"day": 2}, "nightly", None)]
    assert client.get_schedule("nightly").next_slot == before.next_slot
    assert _actions(db)[-1] == ("schedule.run", "nightly")


def test_a_deleted_schedule_is_gone_and_its_tasks_stay(client: Client, db: psycopg.Connection, report: Any) -> None:
    client.create_schedule(report, "@daily", name="nightly")
    client.run_schedule("nightly")
    client.delete_schedule("nightly")
    for call in (client.get_schedule, client.delete_schedule, client.run_schedule, client.resume_schedule):
        with pytest.raises(ScheduleNotFound):
            call("nightly")
    assert db.execute("SELECT schedule FROM tasks").fetchall() == [("nightly",)]


def test_a_preview_says_in_words_and_times_what_a_schedule_means(client: Client, report: Any) -> None:
    client.create_schedule(report, "0 3 * * *", name="nightly")
    for said in ("nightly", "0 3 * * *", Schedule("0 3 * * *")):
        shown = client.preview_schedule(said)
        assert shown.description.startswith("At 03:00 every day, UTC")
        assert len(shown.slots) == 20


async def test_the_calls_can_be_awaited(config: Config, report: Any) -> None:
    async with AsyncClient(config) as client:
        made = await client.create_schedule(report, "@daily", name="nightly")
        assert isinstance(await client.run_schedule(made.name), UUID)
        assert [info.last_runs for info in await client.schedules()] == [[]]


def test_a_schedule_explains_what_became_of_a_slot(client: Client, db: psycopg.Connection, report: Any) -> None:
    client.create_schedule(report, Schedule(every=HOUR), name="nightly")
    db.execute("UPDATE schedules SET created_at = '2026-01-01'")
    slot = datetime(2026, 3, 29, 1, tzinfo=UTC)
    client.backfill_schedule("nightly", start=slot, end=slot)
    db.execute("INSERT INTO schedule_skips VALUES ('nightly', %s, %s, 'overlap', 3)", (slot + HOUR, slot + 3 * HOUR))

    def told(at: datetime) -> str:
        return client.explain_schedule("nightly", at)[0]

    assert "was fired: task" in told(slot)
    assert "an earlier run was not finished" in told(slot + 2 * HOUR)
    assert "is not on record" in told(slot + 4 * HOUR)
    assert "is no slot of this schedule" in told(slot + timedelta(minutes=30))
    assert "before the schedule was made" in told(datetime(2025, 1, 1, tzinfo=UTC))
    assert "has not been decided yet" in told(_now(db).replace(minute=0, second=0, microsecond=0) + 2 * HOUR)
    assert client.explain_schedule("nightly")[0].startswith("Its next slot is")
    client.pause_schedule("nightly", "not today")
    assert "not today. Resume it" in client.explain_schedule("nightly")[0]
    db.execute("UPDATE schedules SET paused_at = NULL, next_slot = now() - interval '1 min'")
    assert "No worker and no server leads now." in client.explain_schedule("nightly")[0]


def test_runs_of_a_schedule_are_found_by_a_search(client: Client, report: Any) -> None:
    client.create_schedule(report, "@daily", name="nightly")
    run, plain = client.run_schedule("nightly"), client.submit_task(report)
    assert [t.id for t in client.search_tasks("schedule:nightly").tasks] == [run]
    assert [t.id for t in client.search_tasks("schedule:*").tasks] == [run]
    assert [t.id for t in client.search_tasks("-schedule:nightly").tasks] == [plain]


# Schedules in code.


def test_a_wrong_schedule_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidOption, match="the minute '61'"):
        task(schedule="61 * * * *")(lambda: None)
    with pytest.raises(TaskExecutionError, match="day"):

        @task(schedule=Schedule("@daily", args={"day": "Monday"}))
        def report(day: int) -> None: ...

    with pytest.raises(InvalidTaskFunction, match="several are named 'cleanup'"):

        @task(schedule=["@daily", "@weekly"])
        def cleanup() -> None: ...


def test_a_run_by_hand_is_an_id_that_asks_for_its_task(client: Client, report: Any) -> None:
    client.create_schedule(report, "@daily", name="nightly")
    task_id = client.run_schedule("nightly")
    assert isinstance(task_id, SyncTaskId)
    assert task_id.get().schedule == "nightly"


async def test_schedules_have_module_level_calls_of_both_colours(config: Config, report: Any) -> None:
    tasklib.init(config)
    try:
        await tasklib.create_schedule(report, "@daily", name="nightly")
        assert [info.name for info in await tasklib.list_schedules()] == ["nightly"]
        await tasklib.change_schedule("nightly", overlap="skip")
        await tasklib.pause_schedule("nightly", "why")
        assert (await tasklib.get_schedule("nightly")).pause_note == "why"
        await tasklib.resume_schedule("nightly")
        assert isinstance(await tasklib.run_schedule("nightly"), TaskId)
        assert (await tasklib.preview_schedule("nightly", count=2)).slots
        assert await tasklib.explain_schedule("nightly")
        past = datetime(2026, 1, 1, tzinfo=UTC)
        assert (await tasklib.backfill_schedule("nightly", start=past, end=past)).count == 1
        await tasklib.delete_schedule("nightly")
        assert await asyncio.to_thread(tasklib.sync.list_schedules) == []
    finally:
        tasklib.close()


def test_pausing_again_changes_the_note_and_without_one_keeps_it(client: Client, db: psycopg.Connection) -> None:
    client.create_schedule("report", "@daily", name="nightly", registered_elsewhere=True)
    first = client.pause_schedule("nightly", "the disk is full")
    again = client.pause_schedule("nightly", "a new disk comes on Monday")
    assert (again.pause_note, again.paused_at) == ("a new disk comes on Monday", first.paused_at)
    kept = client.pause_schedule("nightly")
    assert (kept.pause_note, kept.revision) == (again.pause_note, again.revision)
    assert [action for action, _ in _actions(db)].count("schedule.pause") == 2


def test_a_slot_whose_task_waits_is_explained_with_where_to_look(client: Client, db: psycopg.Connection) -> None:
    client.create_schedule("report", Schedule(every=HOUR), name="hourly", registered_elsewhere=True)
    slot = datetime(2026, 3, 1, tzinfo=UTC)
    [id_] = client.backfill_schedule("hourly", start=slot, end=slot).task_ids
    waits = client.explain_schedule("hourly", slot)[0]
    assert waits.endswith(f"was fired: task {id_} is pending. To see what it waits for: tasklib explain {id_}")
    db.execute("UPDATE tasks SET state = 'cancelled', completed_at = now()")
    assert client.explain_schedule("hourly", slot)[0].endswith(f"task {id_} is cancelled.")

"""Schedules in code: what a deploy stores, changes and retires."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tasklib import (
    Client,
    Config,
    Schedule,
    task,
)
from tasklib.errors import ConfigError
from tasklib.store import schedules
from tasklib.tasks import registry

Declare = Callable[..., None]


@pytest.fixture
def declare() -> Declare:
    """What a program's only module says: one function, with these schedules."""

    def declare(*schedules: Schedule | str, queue: str | None = None) -> None:
        registry.functions.clear()

        @task(schedule=schedules, queue=queue)
        def report(day: int = 1) -> None: ...

    return declare


def _deploy(config: Config, day: int) -> Client:
    return Client(config.with_changes(deployed_at=f"2026-11-{day:02}T00:00:00Z"))


def test_a_deploy_stores_its_schedules_once(config: Config, db: psycopg.Connection, declare: Declare) -> None:
    declare("0 3 * * *", Schedule("@weekly", name="weekly", args={"day": 7}))
    first = _deploy(config, 1)
    assert (done := first.sync_schedules()).created == ["report", "weekly"]
    assert done.retired == []
    again = first.sync_schedules()
    assert (again.created, again.changed, again.unchanged) == ([], [], ["report", "weekly"])
    assert _deploy(config, 2).sync_schedules().unchanged == ["report", "weekly"]
    rows = db.execute("SELECT name, source, revision, deployed_at FROM schedules ORDER BY name").fetchall()
    second = datetime(2026, 11, 2, tzinfo=UTC)
    assert rows == [("report", "code", 1, second), ("weekly", "code", 1, second)]


def test_only_a_newer_deploy_changes_what_is_stored(config: Config, declare: Declare) -> None:
    declare("0 3 * * *")
    _deploy(config, 2).sync_schedules()
    declare("0 4 * * *")
    assert _deploy(config, 1).sync_schedules().refused == ["report"]
    assert _deploy(config, 2).sync_schedules().refused == ["report"], "of two with one stamp the first stays"
    newer = _deploy(config, 3)
    assert newer.sync_schedules().changed == ["report"]
    assert newer.get_schedule("report").schedule.cron == ("0 4 * * *",)
    declare("0 3 * * *")
    assert _deploy(config, 2).sync_schedules().refused == ["report"]


def test_what_is_the_same_in_a_newer_deploy_is_safe_from_one_in_between(config: Config, declare: Declare) -> None:
    declare("0 3 * * *")
    _deploy(config, 1).sync_schedules()
    _deploy(config, 3).sync_schedules()
    declare("0 4 * * *")
    assert _deploy(config, 2).sync_schedules().refused == ["report"]


Meanwhile = Callable[[str, str], None]


@pytest.fixture
def meanwhile(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Just before this statement of the client, once, another process does something to the schedule."""

    def arrange(statement: str, change: str) -> None:
        query, pending = getattr(schedules, statement), [change]

        def late(*arguments: Any, **options: Any) -> Any:
            if pending:
                db.execute(f"UPDATE schedules SET {pending.pop()}".encode())
            return query(*arguments, **options)

        monkeypatch.setattr(schedules, statement, late)

    return arrange


@pytest.mark.parametrize(
    "change",
    ["spec = spec || '{\"cron\": [\"0 5 * * *\"]}', deployed_at = '2026-11-02T00:00Z'", "paused_at = now()"],
    ids=["older deploy", "pause"],
)
def test_a_newer_deploy_is_stored_though_the_schedule_was_changed_after_it_was_read(
    config: Config, declare: Declare, meanwhile: Meanwhile, change: str
) -> None:
    declare("0 3 * * *")
    _deploy(config, 1).sync_schedules()
    declare("0 4 * * *")
    meanwhile("change", f"revision = revision + 1, {change}")
    newer = _deploy(config, 3)
    assert newer.sync_schedules().changed == ["report"]
    assert newer.get_schedule("report").schedule.cron == ("0 4 * * *",)


def test_a_newer_deploy_that_keeps_a_schedule_takes_it_back_from_an_older_one_in_between(
    config: Config, declare: Declare, meanwhile: Meanwhile
) -> None:
    declare("0 3 * * *")
    _deploy(config, 1).sync_schedules()
    older = "spec = spec || '{\"cron\": [\"0 5 * * *\"]}', deployed_at = '2026-11-02T00:00Z', revision = revision + 1"
    meanwhile("deployed", older)
    newer = _deploy(config, 3)
    assert newer.sync_schedules().changed == ["report"]
    assert newer.get_schedule("report").schedule.cron == ("0 3 * * *",)


def test_an_older_deploy_that_read_first_does_not_overwrite_what_a_newer_one_keeps(
    config: Config, declare: Declare, meanwhile: Meanwhile
) -> None:
    declare("0 3 * * *")
    _deploy(config, 1).sync_schedules()
    declare("0 4 * * *")
    meanwhile("change", "deployed_at = '2026-11-03T00:00Z'")
    older = _deploy(config, 2)
    assert older.sync_schedules().refused == ["report"]
    assert older.get_schedule("report").schedule.cron == ("0 3 * * *",)


def test_a_slot_that_is_fired_while_the_schedule_is_changed_is_not_on_record_as_skipped(
    client: Client, db: psycopg.Connection, report: Any, meanwhile: Meanwhile
) -> None:
    client.create_schedule(report, Schedule(every=timedelta(hours=1), args={"day": 1}), name="hourly")
    db.execute("UPDATE schedules SET next_slot = date_trunc('hour', now())")
    meanwhile("change", "next_slot = next_slot + interval '1 h', last_slot = next_slot, fired = 1")
    changed = client.change_schedule("hourly", jitter=5)
    assert (changed.fired, changed.skipped) == (1, 0)
    assert db.execute("SELECT count(*) FROM schedule_skips").fetchone() == (0,)


def test_a_pause_survives_a_deploy(config: Config, declare: Declare) -> None:
    declare("0 3 * * *")
    client = _deploy(config, 1)
    client.sync_schedules()
    client.pause_schedule("report", "not today")
    declare("0 4 * * *", queue="other")
    _deploy(config, 2).sync_schedules()
    info = client.get_schedule("report")
    assert (info.pause_note, info.schedule.cron, info.template["queue"]) == ("not today", ("0 4 * * *",), "other")


def test_what_left_the_code_is_retired_and_comes_back_with_it(config: Config, declare: Declare) -> None:
    declare("0 3 * * *", Schedule("@weekly", name="weekly"))
    client = _deploy(config, 2)
    client.sync_schedules()
    declare("0 3 * * *")
    assert _deploy(config, 1).sync_schedules().retired == [], "an older deploy retires nothing"
    assert _deploy(config, 3).sync_schedules().retired == ["weekly"]
    assert client.get_schedule("weekly").retired_at is not None
    assert [info.name for info in client.schedules(retired=False)] == ["report"]
    declare("0 3 * * *", Schedule("@weekly", name="weekly"))
    assert _deploy(config, 4).sync_schedules().changed == ["weekly"]
    assert client.get_schedule("weekly").retired_at is None


def test_another_programs_schedules_are_not_retired_unless_it_is_said(
    config: Config, db: psycopg.Connection, declare: Declare
) -> None:
    declare("0 3 * * *")
    _deploy(config, 1).sync_schedules()
    db.execute("UPDATE schedules SET module = 'another.module'")
    declare()
    assert _deploy(config, 2).sync_schedules().retired == []
    assert _deploy(config, 2).sync_schedules(retire_others=True).retired == ["report"]


def test_a_deploy_leaves_a_schedule_made_at_run_time_alone(config: Config, declare: Declare) -> None:
    declare("0 3 * * *")
    client = _deploy(config, 1)
    client.create_schedule("report", "@hourly")
    assert client.sync_schedules().refused == ["report"]
    assert client.get_schedule("report").source == "api"


def test_without_a_stamp_a_deploy_is_as_old_as_its_files(config: Config, declare: Declare) -> None:
    declare("0 3 * * *")
    client = Client(config)
    client.sync_schedules()
    stamp = client.get_schedule("report").deployed_at
    assert stamp is not None
    assert stamp == datetime.fromtimestamp(os.path.getmtime(__file__), UTC)


def test_a_stamp_has_to_be_a_time(config: Config) -> None:
    for stamp in ("yesterday", "2026-11-16T12:00:00"):
        with pytest.raises(ConfigError, match="deployed_at must be a time with a zone"):
            config.with_changes(deployed_at=stamp)

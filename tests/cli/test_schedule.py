"""`tasklib schedule`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("url")


def ok(result: Any) -> str:
    assert result.exit_code == 0, result.output
    out: str = result.stdout
    return out


def test_a_schedule_is_made_listed_shown_and_deleted(run: Run, db: psycopg.Connection) -> None:
    made = run(
        *("schedule", "create", "nightly", "report", "full=true", "--cron", "0 3 * * *", "--timezone", "Europe/Berlin"),
        *("--overlap", "skip", "--jitter", "30s", "--queue", "reports", "--priority", "low", "--json"),
    )
    shown = json.loads(ok(made))
    assert shown["schedule"]["cron"] == ["0 3 * * *"]
    assert (shown["template"]["kwargs"], shown["template"]["queue"]) == ({"full": True}, "reports")
    [line] = ok(run("schedule", "list")).splitlines()
    assert line.split("\t")[:4] == ["nightly", "report", "0 3 * * * Europe/Berlin", "active"]
    text = ok(run("schedule", "show", "nightly"))
    assert "At 03:00 every day, Europe/Berlin" in text
    assert "a slot is skipped while an earlier run is not finished" in text
    assert json.loads(ok(run("schedule", "show", "nightly", "--json")))["name"] == "nightly"
    assert run("schedule", "delete", "nightly").output.strip().endswith("Add --yes to do it.")
    ok(run("schedule", "delete", "nightly", "--yes"))
    assert run("schedule", "show", "nightly").exit_code == 1
    assert db.execute("SELECT count(*) FROM schedules").fetchone() == (0,)


def test_a_schedule_is_changed_paused_resumed_and_run(run: Run, db: psycopg.Connection) -> None:
    ok(run("schedule", "create", "often", "report", "--every", "15m"))
    changed = json.loads(ok(run("schedule", "change", "often", "--cron", "@hourly", "day=3", "--json")))
    assert (changed["schedule"]["cron"], changed["template"]["kwargs"]) == (["@hourly"], {"day": 3})
    ok(run("schedule", "pause", "often", "--note", "not today"))
    assert "not today" in ok(run("schedule", "show", "often"))
    assert [line.split("\t")[3] for line in ok(run("schedule", "list", "--paused")).splitlines()] == ["paused"]
    assert "resumed often, next" in run("schedule", "resume", "often").stderr
    task_id = ok(run("schedule", "run", "often")).strip()
    assert db.execute("SELECT id::text, schedule, slot FROM tasks").fetchall() == [(task_id, "often", None)]


def test_tasks_are_listed_and_shown_with_their_schedule_and_slot(run: Run) -> None:
    ok(run("schedule", "create", "nightly", "report", "--cron", "0 3 * * *"))
    stretch = ("--from", "2026-03-01T00:00Z", "--to", "2026-03-01T12:00Z", "--yes")
    of_slot = ok(run("schedule", "backfill", "nightly", *stretch)).strip()
    by_hand = ok(run("schedule", "run", "nightly")).strip()
    rows = {row[0]: row[10:] for row in (line.split("\t") for line in ok(run("list")).splitlines())}
    assert rows == {of_slot: ["nightly", "2026-03-01T03:00:00+00:00"], by_hand: ["nightly", ""]}
    assert "nightly, slot 2026-03-01" in " ".join(ok(run("show", of_slot)).split())


def test_what_to_change_and_when_to_run_must_be_said(run: Run) -> None:
    ok(run("schedule", "create", "nightly", "report", "--cron", "0 3 * * *"))
    assert "say what to change" in run("schedule", "change", "nightly").output
    assert "another name, or change that one" in run("schedule", "create", "nightly", "x", "--every", "1h").output


def test_a_preview_has_a_line_of_english_and_times_in_zone_and_utc(run: Run) -> None:
    text = ok(run("schedule", "preview", "30 2 * * *", "--timezone", "Asia/Tokyo", "--count", "3"))
    first, *rows = text.splitlines()
    assert first.startswith("At 02:30 every day, Asia/Tokyo")
    assert len(rows) == 3
    assert all("02:30:00+09:00" in row and "17:30:00+00:00" in row for row in rows)
    assert len(json.loads(ok(run("schedule", "preview", "@daily", "--json")))["slots"]) == 20


def test_a_backfill_shows_its_slots_and_runs_them_once(run: Run, db: psycopg.Connection) -> None:
    ok(run("schedule", "create", "nightly", "report", "--cron", "@daily"))
    stretch = ("--from", "2026-03-01T00:00Z", "--to", "2026-03-03T00:00Z")
    assert len(ok(run("schedule", "backfill", "nightly", *stretch, "--dry-run")).splitlines()) == 3
    assert "run 3 slots of nightly all at once" in run("schedule", "backfill", "nightly", *stretch).output
    assert len(ok(run("schedule", "backfill", "nightly", *stretch, "--yes")).splitlines()) == 3
    assert ok(run("schedule", "backfill", "nightly", *stretch, "--yes")) == ""
    assert "has no time zone" in run("schedule", "backfill", "nightly", "--from", "2026-03-01", "--to", "x").output


def test_a_schedule_that_can_not_be_read_is_shown_with_the_reason(run: Run, db: psycopg.Connection) -> None:
    ok(run("schedule", "create", "nightly", "report", "--cron", "0 3 * * *"))
    db.execute("""UPDATE schedules SET spec = spec || '{"timezone": "Mars/Olympus"}'""")
    assert "Mars/Olympus" in ok(run("schedule", "show", "nightly"))


def test_a_zone_goes_with_an_expression_and_not_with_a_schedule(run: Run) -> None:
    ok(run("schedule", "create", "nightly", "report", "--cron", "0 3 * * *"))
    result = run("schedule", "preview", "nightly", "--timezone", "Europe/Berlin")
    assert (result.exit_code, "nightly has a zone of its own" in result.output) == (2, True)


def test_sync_stores_what_modules_declare(run: Run, project: Path) -> None:
    code = "from tasklib import task\n\n@task(schedule='{}')\ndef clean_up() -> None: ...\n"
    (project / "scheduled.py").write_text(code.format("0 3 * * *"))
    assert ok(run("schedule", "sync", "scheduled")) == "created\tclean_up\n"
    assert ok(run("schedule", "sync", "scheduled")) == "unchanged\tclean_up\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("create", "n", "t"), "say when it runs"),
        (("create", "n", "t", "--cron", "61 * * * *"), "the minute '61'"),
        (("create", "n", "t", "--cron", "@daily", "--timezone", "Europe/Berln"), "Did you mean 'Europe/Berlin'"),
        (("create", "n", "t", "--every", "often"), "is not a length of time"),
        (("change", "n", "--cron", "@daily"), "no schedule is named 'n'"),
        (("run", "n"), "no schedule is named 'n'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(run: Run, args: tuple[str, ...], message: str) -> None:
    result = run("schedule", *args)
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())

"""`tasklib list` and `tasklib show`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tasklib import Client
from tasklib.cli.moments import past_moment
from tests.cli.conftest import Run
from tests.cli.processes import SOURCES, Command

ERROR = "Traceback (most recent call last):\n  File x\nValueError: no \x1b[31mred"


@pytest.fixture
def ids(url: str, db: psycopg.Connection) -> dict[str, str]:
    """One task in every state, oldest first, named after it."""
    columns: dict[str, dict[str, Any]] = {
        "pending": {"scheduled_at": "now() + interval '1 hour'"},
        "running": {"worker_id": "'w-1'", "locked_until": "now() + interval '10 min'", "started_at": "now()"},
        "completed": {"completed_at": "now()", "started_at": "now()", "result": """'{"value": {"sent": true}}'"""},
        "failed": {"next_retry_at": "now() + interval '28 min'", "error": f"$e${ERROR}$e$", "retry_count": "1"},
        "cancelled": {"completed_at": "now()"},
        "dead_letter": {
            "completed_at": "now()",
            "error": f"$e${ERROR}$e$",
            "retry_count": "3",
            "history": """'[{"attempt": 1, "outcome": "timeout", "worker": "w-0", "error": "TaskTimeout: late",
                "started_at": "2025-01-01T00:00:00+00:00", "ended_at": "2025-01-01T00:00:09+00:00"}]'""",
        },
    }
    found = {}
    for state, values in columns.items():
        names = ", ".join(["name", "state", "kwargs", "tags", "queue", *values])
        given = ", ".join(
            [f"'{state}_task'", f"'{state}'", """'{"to": "a"}'""", "'{\"n\": 1}'", "'mail'", *values.values()]
        )
        row = db.execute(f"INSERT INTO tasks ({names}) VALUES ({given}) RETURNING id").fetchone()
        assert row is not None
        found[state] = str(row[0])
    return found


def test_piped_list_has_whole_ids_between_tabs_newest_first(run: Run, ids: dict[str, str]) -> None:
    rows = [line.split("\t") for line in run("list").stdout.splitlines()]
    assert [row[0] for row in rows] == list(reversed(ids.values()))
    newest = rows[0]
    assert newest[1:6] == ["dead_letter_task", "dead_letter", "0", "3/3", "mail"]
    assert datetime.fromisoformat(newest[6]).tzinfo is not None
    assert newest[7] == r"ValueError: no \x1b[31mred"
    assert "\x1b" not in run("list").stdout


def test_filters(run: Run, ids: dict[str, str]) -> None:
    def names(*args: str) -> list[str]:
        result = run("list", *args)
        assert result.exit_code == 0, result.output
        return [line.split("\t")[2] for line in result.stdout.splitlines()]

    assert names("--state", "failed", "--state", "running") == ["failed", "running"]
    assert names("--name", "pending_task") == ["pending"]
    assert names("--queue", "other") == []
    assert names("--tag", "n=1", "--limit", "2") == ["dead_letter", "cancelled"]
    assert names("--tag", "n=2") == []
    assert names("--since", "1h", "--limit", "1") == ["dead_letter"]
    assert names("--until", "1h") == []
    assert names("--since", "2100-01-01") == []
    assert names("--after", ids["running"]) == ["pending"]
    assert names("--after", ids["running"][-8:]) == ["pending"]


def test_list_speaks_the_search_language(run: Run, ids: dict[str, str]) -> None:
    def states(*args: str) -> list[str]:
        result = run("list", *args)
        assert result.exit_code == 0, result.output
        return [line.split("\t")[2] for line in result.stdout.splitlines()]

    assert states("state:failed,running") == ["failed", "running"]
    assert states("name:*_task -state:completed args.to:a") == [
        "dead_letter",
        "cancelled",
        "failed",
        "running",
        "pending",
    ]
    assert states("tag.n:1 error:red") == ["dead_letter", "failed"]
    assert states("due:>30m") == ["pending"]
    assert states(f"id:{ids['running']}") == ["running"]
    assert states("queue:mail", "--limit", "2") == ["dead_letter", "cancelled"]
    assert states("queue:mail", "--after", ids["running"]) == ["pending"]
    assert states("queue:nowhere") == []
    [line] = run("list", "state:running", "--json").stdout.splitlines()
    assert json.loads(line)["kwargs"] == {"to": "a"}


def test_a_search_is_saved_listed_run_and_deleted(run: Run, ids: dict[str, str]) -> None:
    assert run("search", "save", "late mail", "queue:mail state:failed").exit_code == 0
    assert run("search", "list").stdout.split("\t")[:2] == ["late mail", "queue:mail state:failed"]
    [line] = run("list", "--saved", "late mail").stdout.splitlines()
    assert line.startswith(ids["failed"])
    assert run("list", "--saved", "late mail", "name:x").exit_code == 2
    wrong = run("search", "save", "wrong", "state:fialed")
    assert (wrong.exit_code, "Did you mean failed?" in wrong.stderr) == (1, True)
    assert run("search", "delete", "late mail").exit_code == 0
    assert "there is no saved search 'late mail'" in run("search", "delete", "late mail").stderr
    assert "there is no saved search 'late mail'" in run("list", "--saved", "late mail").stderr


def test_a_search_that_cannot_be_parsed_is_shown_with_the_place(run: Run, ids: dict[str, str]) -> None:
    result = run("list", "name:x state:fialed")
    assert result.exit_code == 2
    assert "Did you mean failed?" in result.stderr
    assert "give a search or options, not both" in run("list", "name:x", "--state", "failed").stderr


def test_json_lines_hold_everything(run: Run, ids: dict[str, str]) -> None:
    lines = [json.loads(line) for line in run("list", "--json").stdout.splitlines()]
    assert {line["id"] for line in lines} == set(ids.values())
    assert lines[0]["kwargs"] == {"to": "a"}
    assert lines[0]["error"] == ERROR


def test_in_a_terminal_the_list_is_a_table_with_short_ids(command: Command, url: str, ids: dict[str, str]) -> None:
    process = command("list", "--limit", "5", terminal=True, TASKLIB_DATABASE_URL=url)
    assert process.exit_code() == 0
    shown = re.sub(r"\x1b\[[\d;]*m", "", process.said())
    for state in ("running", "completed", "failed", "cancelled", "dead_letter"):
        [line] = [line for line in shown.splitlines() if f"{state}_task" in line]
        assert line.split()[0] == ids[state][-8:]
    assert re.search(r"retry in 2\d min", shown)
    assert "─────" in shown
    assert f"There may be more: --after {ids['running']}" in shown
    assert "\x1b[1;31mdead_letter" in process.said()


def test_empty_list_prints_nothing_to_a_pipe(run: Run, url: str) -> None:
    assert run("list").output == ""


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--state", "done"), "'done' is not one of 'pending', 'running', 'completed'"),
        (("--since", "yesterday"), "'yesterday' is not a time; write ISO 8601 such as 2025-06-30T09:00, or a time ago"),
        (("--since", "999999999w"), "is too long ago"),
        (("--tag", "batch"), "'batch' is not of the form key=value"),
    ],
)
def test_filters_that_make_no_sense_are_usage_errors(run: Run, args: tuple[str, ...], words: str) -> None:
    result = run("list", *args)
    assert result.exit_code == 2
    assert words in result.stderr


def test_relative_and_absolute_times() -> None:
    now = datetime(2025, 6, 30, 12, tzinfo=UTC)
    assert past_moment("--since", "90s", now) == now - timedelta(seconds=90)
    assert past_moment("--since", "1.5h", now) == now - timedelta(minutes=90)
    assert past_moment("--since", "2025-06-30T09:00+02:00") == datetime(2025, 6, 30, 7, tzinfo=UTC)
    assert past_moment("--since", "2025-06-30") == datetime(2025, 6, 30).astimezone()
    assert past_moment("--since", None) is None


def test_show_tells_everything_about_a_dead_letter(run: Run, ids: dict[str, str]) -> None:
    result = run("show", ids["dead_letter"])
    assert result.exit_code == 0
    shown = result.stdout
    for text in (
        f"dead_letter_task  {ids['dead_letter']}  dead_letter\n",
        "mail, priority 0",
        "3 of 3 retries used",
        '"to": "a"',
        "timeout",
        "9.0 s",
        "TaskTimeout: late",
        "Traceback (most recent call last):\n  File x\n",
        r"ValueError: no \x1b[31mred",
    ):
        assert text in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("pending", ("scheduled", "(in ")),
        ("running", ("worker   w-1", "token 0, until ")),
        ("completed", ('"sent": true', "took <1 ms")),
        ("failed", ("next retry", "1 of 3 retries used")),
    ],
)
def test_show_tells_what_matters_in_each_state(
    run: Run, ids: dict[str, str], state: str, words: tuple[str, ...]
) -> None:
    shown = run("show", ids[state][-8:]).stdout
    for text in words:
        assert text in shown


def test_show_as_json_is_the_row(run: Run, ids: dict[str, str]) -> None:
    shown = json.loads(run("show", ids["completed"], "--json").stdout)
    assert (shown["id"], shown["result"]) == (ids["completed"], {"sent": True})


@pytest.mark.usefixtures("ids")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "error: 'nonsense' is not a task's id. An id is a UUID; the end of one (8 characters) will do."),
        ("00000000", "error: none of the newest 100,000 tasks has an id that ends in 00000000. Give the whole id;"),
        ("00000000-0000-0000-0000-000000000000", "error: no task has the id 00000000-0000-0000-0000-000000000000;"),
    ],
)
def test_id_that_is_none_is_explained(run: Run, text: str, words: str) -> None:
    result = run("show", text)
    assert result.exit_code == 1
    assert result.stderr.startswith(words)


def test_short_id_of_two_tasks_is_refused(run: Run, url: str, db: psycopg.Connection) -> None:
    for first in "12":
        db.execute(f"INSERT INTO tasks (id, name) VALUES ('{first}0000000-0000-7000-8000-00000000abcd', 'x')".encode())
    result = run("show", "0000abcd")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: 2 tasks have an id that ends in 0000abcd: 20000000-")


def test_reader_that_closes_the_pipe_early_is_no_error(project: Path, url: str) -> None:
    with Client(url) as client:
        client.submit_many("x", [{}] * 3000, registered_elsewhere=True)
    piped = f"{sys.executable} -m tasklib list --limit 3000 --json | head -n 1"
    env = {**os.environ, "PYTHONPATH": str(SOURCES), "TASKLIB_DATABASE_URL": url}
    done = subprocess.run(piped, shell=True, cwd=project, env=env, capture_output=True, text=True, timeout=300)
    assert json.loads(done.stdout)["name"] == "x"
    assert done.stderr == ""


NULLS = "result = 'null', history = 'null', progress = 'null', trace_context = 'null'"


def test_rows_with_nulls_of_json_are_listed_and_shown(run: Run, ids: dict[str, str], db: psycopg.Connection) -> None:
    db.execute(f"UPDATE tasks SET {NULLS}".encode())
    assert len(run("list", "--json").stdout.splitlines()) == len(ids)
    for state, task_id in ids.items():
        assert state in run("show", task_id).stdout
        assert json.loads(run("show", task_id, "--json").stdout)["history"] is None

"""`tasklib check`: what a deploy of this code would break."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Run

CODE = """
from tasklib import task

@task(name="mail.deliver", aliases=["mail.send"], version=2)
def deliver(recipients: list[str]) -> None: ...

@deliver.upcast(1)
def _(old):
    return {"recipients": [old["to"]]}

@task
def plain(n: int) -> None: ...
"""


@pytest.fixture(autouse=True)
def program(project: Path, url: str) -> None:
    (project / "app_tasks.py").write_text(CODE)


def insert(
    db: psycopg.Connection, name: str, kwargs: object, version: int | None = None, state: str = "pending"
) -> None:
    ended = "now()" if state == "completed" else "NULL"
    db.execute(
        f"INSERT INTO tasks (name, kwargs, payload_version, state, completed_at) VALUES (%s, %s, %s, %s, {ended})",  # type: ignore[arg-type]
        (name, json.dumps(kwargs), version, state),
    )


def test_all_is_well_if_every_task_can_be_read_in_any_version_and_under_any_name(
    run: Run, db: psycopg.Connection
) -> None:
    insert(db, "mail.send", {"to": "a"})
    insert(db, "mail.send", {"to": "a"}, 1)
    insert(db, "mail.deliver", {"recipients": ["a"]}, 2)
    insert(db, "plain", {"n": 1})
    insert(db, "gone", {}, state="completed")  # it is finished, so no code has to run it
    result = run("check", "app_tasks")
    assert (result.exit_code, result.stdout) == (
        0,
        "Read 4 unfinished tasks and 0 schedules: this code can run all of them.\n",
    )


def test_each_cause_is_told_once_with_a_count_a_sample_and_exit_code_1(run: Run, db: psycopg.Connection) -> None:
    for n in range(3):
        insert(db, "gone", {"n": n})
    insert(db, "plain", {"m": 1})
    insert(db, "plain", {"n": 1}, 5)
    insert(db, "mail.send", {"sender": "a"}, 1)
    insert(db, "mail.deliver", {}, 9)
    result = run("check", "app_tasks")
    assert result.exit_code == 1
    assert "3 tasks of gone (such as" in result.stdout
    assert "n: is missing" in result.stdout
    assert "1 task of plain, version 5" in result.stdout
    assert "the function has no versions, so they wait for a worker that offers plain@5" in result.stdout
    assert "the upcast from version 1 raised KeyError: 'to'" in result.stdout
    assert "the function reads 1, 2, so they wait for a worker that offers mail.deliver@9" in result.stdout
    report = json.loads(run("check", "app_tasks", "--json").stdout)
    assert (report["tasks"], len(report["problems"])) == (7, 5)
    assert {p["kind"] for p in report["problems"]} == {"unknown_name", "arguments", "version"}


def test_schedules_whose_runs_could_not_run_are_told_too(run: Run, db: psycopg.Connection) -> None:
    run("schedule", "create", "nightly", "plain", "--cron", "0 3 * * *", "m=1")
    result = run("check", "app_tasks")
    assert result.exit_code == 1
    assert "1 schedule of plain (such as nightly): the arguments don't fit plain" in result.stdout


def test_a_task_of_a_flow_is_read_without_the_arguments_that_come_later(run: Run, db: psycopg.Connection) -> None:
    db.execute("""INSERT INTO tasks (name, args) VALUES ('plain', '{"n": {"task": "x"}}')""")
    assert run("check", "app_tasks").exit_code == 0
    db.execute(
        """INSERT INTO tasks (name, args, payload_version) VALUES ('mail.deliver', '{"to": {"task": "x"}}', 1)"""
    )
    result = run("check", "app_tasks")
    assert result.exit_code == 0
    assert "1 task not checked" in result.stdout

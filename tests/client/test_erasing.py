"""Erasing by tag: everything of finished tasks is gone, in every table and store; rows and other tasks stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tasklib
from tasklib import Config, FileStore, InvalidOption, TaskFailed, current_task, step, task, wait_for_signal
from tasklib.client.clients import Client
from tasklib.testing import drain

SECRET = "ann.smith@example.com"
TAGS = {"customer": 42}


@pytest.fixture(autouse=True)
def stored(config: Config, tmp_path: Path) -> Config:
    made = config.with_changes(
        payload_store=FileStore(tmp_path / "payloads"), payload_store_from_bytes=1024, max_retries=1
    )
    tasklib.init(made)
    return made


def everything(db: psycopg.Connection, tmp_path: Path) -> str:
    tables = ("tasks", "steps", "signals", "audit")
    rows = [row[0] for t in tables for row in db.execute(f"SELECT r::text FROM {t} AS r".encode()).fetchall()]
    return "\n".join([*rows, *(p.read_text(errors="replace") for p in tmp_path.rglob("*") if p.is_file())])


def last_record(db: psycopg.Connection) -> int:
    row = db.execute("SELECT COALESCE(max(id), 0) FROM audit").fetchone()
    assert row is not None
    return int(row[0])


async def scene(stored: Config) -> dict[str, Any]:
    @task(name="echo", tags=TAGS)
    def echo(text: str, fail: bool = False) -> str:
        current_task().progress(text)
        if fail:
            raise ValueError(f"no such address: {text}")
        return text

    @task(name="steps", durable=True, tags=TAGS)
    async def steps(text: str) -> str:
        await step("look", lambda: text)
        return f"{await wait_for_signal('go')} {text}"

    made = {
        "done": await echo.submit(text=SECRET),
        "long": await echo.submit(text=f"{SECRET} " * 200),
        "failed": await echo.options(idempotency_key=SECRET).submit(text=SECRET, fail=True),
        "durable": await steps.submit(text=SECRET),
    }
    await drain()
    with Client(stored) as client:
        client.signal(made["durable"], "go", SECRET)
    await drain(until_done=True)
    made["waits"] = await echo.options(delay_seconds=3600).submit(text="waits")
    made["other"] = await echo.options(tags={"customer": 421}).submit(text="other")
    await drain()
    return made


async def test_nothing_of_the_tasks_is_left_and_the_rows_stay(
    stored: Config, db: psycopg.Connection, tmp_path: Path
) -> None:
    made = await scene(stored)
    assert SECRET in everything(db, tmp_path)
    columns = "id, name, state, tags, created_at, completed_at, retry_count"
    before = db.execute(f"SELECT {columns} FROM tasks ORDER BY id".encode()).fetchall()
    with Client(stored) as client:
        assert client.erase_tasks(tags=TAGS, dry_run=True) == client.erase_tasks(tags=TAGS)
        assert client.erase_tasks(tags=TAGS).erased == 0
    assert SECRET not in everything(db, tmp_path)
    assert list((tmp_path / "payloads").rglob("*-*-*-*-*/*")) == []
    assert db.execute(f"SELECT {columns} FROM tasks ORDER BY id".encode()).fetchall() == before
    kept = dict(db.execute("SELECT id, kwargs FROM tasks WHERE NOT kwargs ? '$erased'").fetchall())
    assert kept == {made["waits"]: {"text": "waits"}, made["other"]: {"text": "other"}}
    assert await made["other"].result() == "other"
    history = db.execute("SELECT history -> 0 ->> 'error' FROM tasks WHERE id = %s", (made["failed"],)).fetchone()
    assert history == ("erased",)


async def test_what_is_not_finished_is_counted_and_left(stored: Config, db: psycopg.Connection) -> None:
    await scene(stored)
    before = last_record(db)
    with Client(stored) as client:
        done = client.erase_tasks(tags=TAGS)
        assert (done.erased, done.left) == (4, 1)
        client.cancel_tasks(tags=TAGS)
        again = client.erase_tasks(tags=TAGS)
    assert (again.erased, again.left) == (1, 0)
    query = "SELECT details FROM audit WHERE action = 'tasks.erase' AND id > %s ORDER BY id"
    records = db.execute(query, (before,)).fetchall()
    assert [r[0] for r in records] == [{"tags": TAGS, "count": 4}, {"tags": TAGS, "count": 1}]


async def test_an_erased_task_that_is_replayed_is_a_dead_letter_at_once(stored: Config) -> None:
    made = await scene(stored)
    with Client(stored) as client:
        client.erase_tasks(tags=TAGS)
        client.replay_task(made["done"])
    await drain()
    with pytest.raises(TaskFailed, match="were erased"):
        await made["done"].result()


@pytest.mark.parametrize("conditions", [{}, {"tags": {}}, {"state": "pending", "tags": TAGS}])
def test_it_needs_a_condition_and_finished_tasks(stored: Config, conditions: dict[str, Any]) -> None:
    with Client(stored) as client, pytest.raises(InvalidOption):
        client.erase_tasks(**conditions)


async def test_an_erasure_that_was_interrupted_goes_on(
    stored: Config, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasklib.client import erasing

    await scene(stored)
    monkeypatch.setattr(erasing, "PAGE", 1)
    before = last_record(db)
    with Client(stored) as client:
        while not _ends_within(5, client, client.calls.erase_tasks(tags=TAGS)):
            pass
    assert SECRET not in everything(db, tmp_path)
    query = "SELECT sum((details ->> 'count')::int) FROM audit WHERE action = 'tasks.erase' AND id > %s"
    assert db.execute(query, (before,)).fetchone() == (4,)


def _ends_within(effects: int, client: Client, call: Any) -> bool:
    """Whether the call ends with so many effects; if not, the program is killed before the next one."""
    answer = None
    for _ in range(effects):
        try:
            answer = client._do(call.send(answer))
        except StopIteration:
            return True
    return False


def test_the_command_asks_erases_and_says_what_it_left(stored: Config, db: psycopg.Connection) -> None:
    from typer.testing import CliRunner

    from tasklib.cli.app import app

    db.execute(
        "INSERT INTO tasks (name, state, tags, kwargs, completed_at) "
        """VALUES ('x', 'completed', '{"customer": 42}', '{"a": 1}', now()), """
        """('x', 'pending', '{"customer": 42}', '{}', NULL)"""
    )
    run = CliRunner()
    arguments = ["erase", "--tag", "customer=42", "--database-url", stored.database_url]
    assert "would erase 1 finished task\n1 task matches" in run.invoke(app, [*arguments, "--dry-run"]).stdout
    refused = run.invoke(app, arguments)
    assert refused.exit_code == 1
    assert db.execute("SELECT kwargs FROM tasks WHERE state = 'completed'").fetchall() == [({"a": 1},)]
    done = run.invoke(app, [*arguments, "--yes"])
    assert (done.exit_code, done.stdout.splitlines()[0]) == (1, "erased 1 finished task")
    assert run.invoke(app, ["erase", "--database-url", stored.database_url]).exit_code == 2
    db.execute("DELETE FROM tasks WHERE state = 'pending'")
    assert run.invoke(app, [*arguments, "--yes"]).exit_code == 0
    assert json.dumps(db.execute("SELECT kwargs FROM tasks").fetchall()) == '[[{"$erased": true}]]'

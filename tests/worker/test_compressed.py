"""Long payloads of sealed tasks are compressed before, and only workers that can read them get them."""

from __future__ import annotations

import psycopg
import pytest

import tasklib
from tasklib import Config, Worker, task
from tasklib.tasks import compression
from tasklib.testing import drain

LONG = "the same again and again, " * 400


@pytest.fixture(autouse=True)
def sealed(config: Config) -> Config:
    made = config.with_changes(keys=(("a", bytes(32)),), max_retries=0)
    tasklib.init(made)
    return made


async def test_long_arguments_and_results_are_small_in_the_table(db: psycopg.Connection) -> None:
    @task(name="echo", sealed=True)
    async def echo(text: str) -> str:
        return text

    task_id = await echo.submit(text=LONG)
    await drain()
    assert await task_id.result() == LONG
    row = db.execute("SELECT required_capabilities, length(kwargs::text), length(result::text) FROM tasks").fetchone()
    assert row is not None
    assert row[0] == ["key:a", "zstd"]
    assert max(row[1:]) < len(LONG) // 10


async def test_a_function_that_switches_it_off_is_sealed_at_full_length(db: psycopg.Connection) -> None:
    @task(name="echo", sealed=True, compress=False)
    async def echo(text: str) -> str:
        return text

    await echo.submit(text=LONG)
    await drain()
    row = db.execute("SELECT required_capabilities, length(kwargs::text), length(result::text) FROM tasks").fetchone()
    assert row is not None
    assert row[0] == ["key:a"]
    assert min(row[1:]) > len(LONG)


async def test_a_worker_without_the_library_never_gets_the_task(
    sealed: Config, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    @task(name="echo", sealed=True)
    async def echo(text: str) -> str:
        return text

    long, short = await echo.submit(text=LONG), await echo.submit(text="short")
    with monkeypatch.context() as patch:
        patch.setattr(compression, "_library", lambda: None)
        await Worker(sealed, burst=True, signals=False).run()
    states = dict(db.execute("SELECT id, state FROM tasks").fetchall())
    assert (states[long], states[short]) == ("pending", "completed")
    await Worker(sealed, burst=True, signals=False).run()
    assert await long.result() == LONG


def test_columns_are_compressed_by_lz4_where_the_server_has_it(db: psycopg.Connection, config: Config) -> None:
    offered = db.execute("SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'").fetchone()
    wanted = "l" if offered and "lz4" in offered[0] else ""
    found = db.execute(
        "SELECT DISTINCT attcompression::text FROM pg_attribute WHERE attrelid = 'tasks'::regclass "
        "AND attname IN ('kwargs', 'result', 'error', 'history', 'progress')"
    ).fetchall()
    assert found == [(wanted,)]

"""A worker hands orders to children that run short tasks: they begin in order, and go back as not begun."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psycopg
import pytest

from tasklib import AsyncClient, Config
from tasklib.events import TaskEnded, TaskStarted
from tasklib.tasks import registry
from tasklib.worker.slots import Prefetch
from tests.eventually import soon
from tests.worker import process_tasks
from tests.worker.watching import Watched, burst, working


@pytest.fixture(autouse=True)
def _all_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function counts as short, so that all is claimed ahead and handed over ahead."""
    for function in (process_tasks.note, process_tasks.wait):
        registry.register(function)
    monkeypatch.setattr(Prefetch, "are_short", lambda self, names: True)
    monkeypatch.setattr(Prefetch, "count", 20)
    # A program that traces hands nothing over, and a test before may have imported OpenTelemetry into this process.
    monkeypatch.setattr("tasklib.tracing.API", "no.tracing")


async def _ahead(watched: Watched) -> None:
    await soon(lambda: bool(watched.worker._runner._ahead), "an order is with a busy child")


async def _waiting(client: AsyncClient, go: Path) -> object:
    """Submit a task that waits, and writes its process id."""
    return await client.submit_task(process_tasks.wait, go=str(go), max_retries=0)


@pytest.mark.parametrize("slots", [1, 3])
async def test_tasks_begin_in_order_and_once_each(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    monkeypatch.setattr("tasklib.worker.runner.PATIENCE_SECONDS", 600.0)
    client = AsyncClient(config)
    notes = tmp_path / "notes"
    calls = [{"path": str(notes), "number": n} for n in range(100)]
    await client.submit_many(process_tasks.note, calls)
    watched = await burst(config.with_changes(process_max_tasks=40), concurrency=slots)
    assert sum(e.state == "completed" for e in watched.all(TaskEnded)) == 100
    assert len(watched.all(TaskStarted)) == 100
    began = [int(line) for line in notes.read_text().split()]
    assert sorted(began) == list(range(100))
    assert slots > 1 or began == list(range(100)), "of those that run at a time, any may write first"


async def test_task_behind_one_that_takes_long_is_overtaken_by_no_more_than_the_slots(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklib.worker.runner.PATIENCE_SECONDS", 600.0)
    client = AsyncClient(config)
    notes = tmp_path / "notes"
    long = await _waiting(client, tmp_path / "go")
    ids = await client.submit_many(process_tasks.note, [{"path": str(notes), "number": n} for n in range(30)])
    async with working(config, concurrency=2) as watched:
        for task_id in ids:
            await watched.ended(task_id, "completed")
        (tmp_path / "go").touch()
        await watched.ended(long, "completed")
    # One child is busy all the time, so the other one has run them, one after the other.
    began = [int(line) for line in notes.read_text().split()]
    assert sorted(began) == list(range(30))
    assert max(sum(other > n for other in began[: began.index(n)]) for n in range(30)) <= 2


async def test_task_with_a_killed_child_counts_no_crash_unless_it_had_begun(
    config: Config, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklib.worker.runner.PATIENCE_SECONDS", 600.0)
    client = AsyncClient(config)
    first = await _waiting(client, tmp_path / "go")
    second = await client.submit_task(process_tasks.note, path=str(tmp_path / "notes"), number=2, max_retries=0)
    async with working(config, concurrency=1) as watched:
        await soon((tmp_path / "go.pid").exists, "the first one runs")
        await _ahead(watched)
        os.kill(int((tmp_path / "go.pid").read_text()), signal.SIGKILL)
        await watched.ended(second, "completed")
        (tmp_path / "go").touch()
        await watched.ended(first, "completed")
    rows = db.execute("SELECT id, retry_count, crash_count FROM tasks").fetchall()
    assert {row[0]: row[1:] for row in rows} == {first: (0, 1), second: (0, 0)}


async def test_task_behind_one_that_takes_long_begins_in_the_first_free_slot(config: Config, tmp_path: Path) -> None:
    client = AsyncClient(config)
    long = [await _waiting(client, tmp_path / "go 1"), await _waiting(client, tmp_path / "go 2")]
    async with working(config, concurrency=2) as watched:
        await soon(lambda: all((tmp_path / f"go {n}.pid").exists() for n in (1, 2)), "both run")
        third = await client.submit_task(process_tasks.note, path=str(tmp_path / "notes"), number=3)
        (tmp_path / "go 2").touch()
        await watched.ended(long[1], "completed")
        await watched.ended(third, "completed")
        assert watched.all(TaskEnded)[-1].id != str(long[0]), "the first one still runs"
        (tmp_path / "go 1").touch()
        await watched.ended(long[0], "completed")


async def test_task_behind_one_that_takes_long_goes_back_for_other_workers(
    config: Config, db: psycopg.Connection, tmp_path: Path
) -> None:
    client = AsyncClient(config)
    first = await _waiting(client, tmp_path / "go")
    second = await client.submit_task(process_tasks.note, path=str(tmp_path / "notes"), number=2, max_retries=0)
    async with working(config, concurrency=1) as watched:
        await soon((tmp_path / "go.pid").exists, "the first one runs")
        released = await watched.ended(second, "pending")
        assert released.state == "pending"
        (tmp_path / "go").touch()
        await watched.ended(first, "completed")
        await watched.ended(second, "completed")
    assert db.execute("SELECT retry_count, crash_count FROM tasks WHERE id = %s", (second,)).fetchone() == (0, 0)


@pytest.mark.parametrize("how", ["cancelled", "stopped"])
async def test_task_that_was_handed_over_is_settled_without_being_begun(
    config: Config, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("tasklib.worker.runner.PATIENCE_SECONDS", 600.0)
    client = AsyncClient(config)
    first = await _waiting(client, tmp_path / "go")
    second = await client.submit_task(process_tasks.note, path=str(tmp_path / "notes"), number=2)
    async with working(config, concurrency=1) as watched:
        await soon((tmp_path / "go.pid").exists, "the first one runs")
        await _ahead(watched)
        if how == "cancelled":
            await client.cancel_task(second)
            await watched.ended(second, "cancelled")
        else:
            watched.worker.stop()
            await watched.ended(second, "pending")
        (tmp_path / "go").touch()
        await watched.ended(first, "completed")
        await asyncio.sleep(0)
    assert not (tmp_path / "notes").exists()
    state = "cancelled" if how == "cancelled" else "pending"
    assert db.execute("SELECT state, crash_count FROM tasks WHERE id = %s", (second,)).fetchone() == (state, 0)

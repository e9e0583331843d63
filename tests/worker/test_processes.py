"""Tasks in child processes, as a worker runs them: killed at their timeout, and alone in their crash."""

from __future__ import annotations

import sys
from pathlib import Path

import psycopg
import pytest

from tasklib import AsyncClient, Config
from tasklib.errors import TaskLibError
from tasklib.events import TaskEnded, TaskNotBegun, TaskStarted
from tasklib.executors import processes
from tasklib.tasks import registry
from tasklib.worker import runner
from tests.worker import process_tasks
from tests.worker.watching import burst, working


@pytest.fixture(autouse=True)
def _registered() -> None:
    for function in (process_tasks.add, process_tasks.sleep, process_tasks.die):
        registry.register(function)


async def test_task_runs_in_another_process_and_its_result_comes_back(config: Config) -> None:
    client = AsyncClient(config)
    ids = await client.submit_many(process_tasks.add, [{"a": n, "b": 1} for n in range(6)])
    await burst(config, concurrency=3)
    results = [await client.wait_for(i) for i in ids]
    assert [r["sum"] for r in results] == [n + 1 for n in range(6)]
    import os

    assert os.getpid() not in {r["pid"] for r in results}
    assert len({r["pid"] for r in results}) <= 3, "children are used again"


async def test_child_past_its_timeout_is_killed_and_the_retry_gets_more_time(config: Config) -> None:
    client = AsyncClient(config)
    task_id = await client.submit_task(process_tasks.sleep, timeout_seconds=1)
    await burst(config)
    row = await client.get_task(task_id)
    assert row is not None
    assert (row.state, row.retry_count, row.crash_count, row.timeout_seconds) == ("failed", 1, 0, 2)
    assert "longer than its timeout of 1 s" in str(row.error)


async def test_time_of_an_attempt_runs_from_when_its_child_calls_the_function(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nwhile [ ! -e "{tmp_path}/go" ]; do sleep 0.05; done\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    client = AsyncClient(config)
    task_id = await client.submit_task(process_tasks.add, a=1, b=1, timeout_seconds=60)
    async with working(config) as watched:
        await watched.until(TaskStarted)
        [attempt] = watched.worker._runner.running
        assert attempt.deadline is None
        (tmp_path / "go").touch()
        await watched.ended(task_id, "completed")
        assert attempt.deadline is not None


async def test_task_for_which_no_process_can_be_started_goes_back_as_it_was_and_runs_later(
    config: Config, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = AsyncClient(config)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    task_id = await client.submit_task(process_tasks.add, a=1, b=1, max_retries=0)
    async with working(config) as watched:
        said = await watched.until(TaskNotBegun)
        assert said.reason.startswith("no child process could be started:")
        assert (await watched.ended(task_id)).state == "pending"
        row = db.execute("SELECT retry_count, crash_count, error, history FROM tasks").fetchone()
        assert row == (0, 0, None, None)
        monkeypatch.undo()
        await watched.until(TaskEnded, lambda e: e.state == "completed")


async def test_burst_ends_with_an_error_when_no_process_can_ever_be_started(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = AsyncClient(config)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    monkeypatch.setattr(processes, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr(runner, "_NOT_BEGUN_SECONDS", 0.0)
    task_id = await client.submit_task(process_tasks.add, a=1, b=1)
    with pytest.raises(TaskLibError, match=r"no child process can be started for them .*/no/such/python"):
        await burst(config)
    row = await client.get_task(task_id)
    assert row is not None
    assert (row.state, row.retry_count, row.crash_count) == ("pending", 0, 0)


async def test_child_that_dies_fails_its_own_attempt_only_and_is_counted_as_a_crash(config: Config) -> None:
    client = AsyncClient(config)
    dead = await client.submit_task(process_tasks.die)
    alive = await client.submit_task(process_tasks.add, a=1, b=1)
    await burst(config, concurrency=2)
    row = await client.get_task(dead)
    assert row is not None
    assert (row.state, row.crash_count) == ("failed", 1)
    assert "died" in str(row.error)
    assert (row.history or [])[0]["outcome"] == "crash"
    assert (await client.wait_for(alive))["sum"] == 2


async def test_task_that_kills_its_child_three_times_is_poison_and_its_neighbours_finish(config: Config) -> None:
    client = AsyncClient(config)
    poison = await client.submit_task(process_tasks.die, max_retries=50)
    neighbours = await client.submit_many(process_tasks.add, [{"a": n, "b": 0} for n in range(5)])
    async with working(config.with_changes(base_retry_delay_seconds=0), concurrency=2) as watched:
        await watched.ended(poison, "dead_letter")
        for id_ in neighbours:
            await watched.ended(id_, "completed")
    row = await client.get_task(poison)
    assert row is not None
    assert (row.crash_count, row.retry_count) == (3, 0)
    assert [h["outcome"] for h in row.history or []] == ["crash"] * 3


async def test_cancelled_child_is_killed(config: Config) -> None:
    client = AsyncClient(config)
    async with working(config) as watched:
        await watched.worker._backend.notifier.listening.wait()
        task_id = await client.submit_task(process_tasks.sleep)
        await watched.until(TaskStarted)
        await client.cancel_task(task_id)
        await watched.ended(task_id, "cancelled")


async def test_second_stop_kills_the_child_and_gives_the_task_back(config: Config) -> None:
    client = AsyncClient(config)
    task_id = await client.submit_task(process_tasks.sleep)
    async with working(config) as watched:
        await watched.until(TaskStarted)
    row = await client.get_task(task_id)
    assert row is not None
    assert (row.state, row.retry_count) == ("pending", 0)

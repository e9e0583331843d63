"""`@task(at_most_once=True)`: begun on record before the call, never twice, and given up if its worker goes away."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, Retry, RetryPolicy, task
from tasklib.errors import InvalidOption, InvalidTaskFunction
from tasklib.events import ResultRefused, TaskStarted
from tasklib.tasks import registry
from tests.worker import process_tasks
from tests.worker.watching import burst, working


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_retries": 1}, "max_retries"),
        ({"retry_policy": RetryPolicy()}, "retry_policy"),
        ({"non_retriable": (ValueError,)}, "non_retriable"),
        ({"transactional": True}, "transactional"),
    ],
)
def test_options_that_make_no_sense_with_it_are_refused_at_the_decorator(options: dict[str, Any], named: str) -> None:
    def work(connection: Any = None) -> None: ...

    with pytest.raises(InvalidTaskFunction, match=rf"work: .*{named}"):
        task(at_most_once=True, **options)(work)


def test_retries_are_refused_at_submission(config: Config) -> None:
    @task(at_most_once=True)
    def work() -> None: ...

    with Client(config) as client:
        with pytest.raises(InvalidOption, match="work runs at most once"):
            client.submit_task(work, max_retries=2)
        row = client.get_task(client.submit_task(work))
    assert row is not None
    assert row.max_retries == 0


async def test_its_beginning_is_on_record_when_the_function_is_called(config: Config, db: psycopg.Connection) -> None:
    seen: list[Any] = []

    @task(at_most_once=True)
    async def work() -> None:
        seen.append(db.execute("SELECT begun_token = lease_token, at_most_once FROM tasks").fetchone())

    await AsyncClient(config).submit_task(work)
    await burst(config)
    assert seen == [(True, True)]


async def test_a_row_inserted_by_hand_runs_at_most_once_too(config: Config, db: psycopg.Connection) -> None:
    @task(at_most_once=True)
    async def work() -> None:
        raise ValueError("no")

    db.execute("INSERT INTO tasks (name) VALUES ('work')")
    await burst(config)
    assert db.execute("SELECT state, max_retries, retry_count FROM tasks").fetchone() == ("dead_letter", 3, 0)


async def test_asking_for_a_retry_gives_it_up_and_says_why(config: Config, db: psycopg.Connection) -> None:
    @task(at_most_once=True)
    async def work() -> None:
        raise Retry(in_=1)

    await AsyncClient(config).submit_task(work)
    await burst(config)
    [(state, error)] = db.execute("SELECT state, error FROM tasks").fetchall()
    assert state == "dead_letter"
    assert error.endswith("work runs at most once, so it is not retried.")


async def test_a_worker_stopped_while_it_runs_gives_it_up_and_says_why(config: Config, db: psycopg.Connection) -> None:
    @task(at_most_once=True)
    async def work() -> None:
        await asyncio.Event().wait()

    task_id = await AsyncClient(config).submit_task(work)
    async with working(config) as watched:
        await watched.until(TaskStarted)
        watched.stop_attempts()
        ended = await watched.ended(task_id, "dead_letter")
    assert "was stopped while the task ran. The task runs at most once" in str(ended.error)


async def test_it_is_not_called_if_the_lease_is_gone_before_it_begins(config: Config, db: psycopg.Connection) -> None:
    @task(at_most_once=True)
    async def work() -> None:
        raise AssertionError("must not run")

    async with working(config) as watched:
        begin = watched.worker._backend.begin

        async def after_a_theft(worker_id: str, begins: Any) -> set[str]:
            db.execute("UPDATE tasks SET lease_token = lease_token + 1, worker_id = 'thief'")
            return await begin(worker_id, begins)

        watched.worker._backend.begin = after_a_theft  # type: ignore[method-assign]
        await AsyncClient(config).submit_task(work)
        await watched.until(ResultRefused)
    assert not watched.all(TaskStarted)


async def test_nothing_is_claimed_ahead_by_a_look_that_may_bring_such_tasks(
    config: Config, db: psycopg.Connection
) -> None:
    most = 0

    @task(at_most_once=True)
    async def once() -> None:
        nonlocal most
        most = max(most, watched.worker.taken)

    client = AsyncClient(config)
    await client.submit_many(once, [{} for _ in range(300)])
    async with working(config, concurrency=2) as watched:
        await watched.until(TaskStarted, count=300)
    assert most <= 2


async def test_it_goes_back_as_it_was_when_no_child_process_can_be_started_and_runs_later(
    config: Config, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.register(process_tasks.once)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    task_id = await AsyncClient(config).submit_task(process_tasks.once)
    async with working(config) as watched:
        ended = asyncio.create_task(watched.ended(task_id))
        refused = asyncio.create_task(watched.until(ResultRefused))
        await asyncio.wait([ended, refused], return_when=asyncio.FIRST_COMPLETED)
        refused.cancel()
        assert ended.done(), "its beginning must not be on record yet"
        assert ended.result().state == "pending"
        monkeypatch.undo()
        await watched.ended(task_id, "completed")
    assert db.execute("SELECT begun_token = lease_token FROM tasks").fetchone() == (True,)


async def test_a_worker_stopped_while_no_child_process_is_ready_gives_it_back(
    config: Config, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.register(process_tasks.once)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 600\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    await AsyncClient(config).submit_task(process_tasks.once)
    async with working(config) as watched:
        await watched.until(TaskStarted)
    assert db.execute("SELECT state FROM tasks").fetchone() == ("pending",)


async def test_it_is_not_called_in_a_child_if_the_lease_is_gone_before_it_begins(
    config: Config, db: psycopg.Connection
) -> None:
    registry.register(process_tasks.once)
    async with working(config) as watched:
        begin = watched.worker._backend.begin

        async def after_a_theft(worker_id: str, begins: Any) -> set[str]:
            db.execute("UPDATE tasks SET lease_token = lease_token + 1, worker_id = 'thief'")
            return await begin(worker_id, begins)

        watched.worker._backend.begin = after_a_theft  # type: ignore[method-assign]
        await AsyncClient(config).submit_task(process_tasks.once)
        await watched.until(ResultRefused)
        assert len(watched.worker._runner._processes._idle) == 1, "the child is free for another task"
    assert db.execute("SELECT state, begun_token FROM tasks").fetchone() == ("running", None)

"""Cancelling what runs: asked through the table and a notification, carried out by the worker, told truthfully."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tasklib import AsyncClient, Config, current_task, task
from tasklib.errors import InvalidOption, TaskCancelled, TaskNotFound
from tasklib.events import SlotStuck, TaskStarted
from tests.eventually import soon
from tests.worker.watching import working


async def test_waiting_task_is_cancelled_at_once(config: Config) -> None:
    @task
    async def work() -> None: ...

    client = AsyncClient(config)
    task_id = await client.submit_task(work)
    assert await client.cancel_task(task_id) == "cancelled"
    with pytest.raises(TaskCancelled, match="was cancelled"):
        await client.wait_for(task_id)
    assert await client.cancel_task(task_id) == "cancelled", "again changes nothing"


async def test_running_coroutine_is_cancelled(config: Config) -> None:
    cleaned = asyncio.Event()

    @task
    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    client = AsyncClient(config)
    async with working(config) as watched:
        await watched.worker._backend.notifier.listening.wait()
        task_id = await client.submit_task(forever)
        await watched.until(TaskStarted)
        assert await client.cancel_task(task_id) == "running", "asked, not yet done"
        await watched.ended(task_id, "cancelled")
    assert cleaned.is_set()


async def test_request_is_found_though_its_notification_was_missed(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    @task
    async def forever() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("tasklib.backends.postgres.cancels._LOOK_EVERY_SECONDS", 0.1)
    client = AsyncClient(config)
    async with working(config.with_changes(listen=False)) as watched:
        task_id = await client.submit_task(forever)
        await watched.until(TaskStarted)
        await client.cancel_task(task_id)
        await watched.ended(task_id, "cancelled")


async def test_thread_is_asked_and_ends_as_it_ends(config: Config) -> None:
    running = threading.Event()

    @task
    def obedient() -> None:
        running.set()
        while not current_task().cancelled:
            threading.Event().wait(0.01)
        raise RuntimeError("stopped half-way")

    @task
    def deaf(go_on: str) -> str:
        running.set()
        while not current_task().cancelled:
            threading.Event().wait(0.01)
        return "finished all the same"

    client = AsyncClient(config)
    async with working(config) as watched:
        await watched.worker._backend.notifier.listening.wait()
        first = await client.submit_task(obedient)
        await watched.until(TaskStarted)
        await client.cancel_task(first)
        ended = await watched.ended(first)
        assert (ended.state, str(ended.error).splitlines()[-1]) == ("cancelled", "RuntimeError: stopped half-way")
        second = await client.submit_task(deaf, go_on="x")
        await watched.until(TaskStarted, count=2)
        await client.cancel_task(second)
        assert (await watched.ended(second)).state == "completed", "what was done is told as done"


async def test_cancelled_thread_keeps_its_timeout(config: Config) -> None:
    release = threading.Event()

    @task(timeout_seconds=5)  # it is cancelled before that
    def deaf() -> None:
        release.wait(60)

    client = AsyncClient(config)
    async with working(config) as watched:
        await watched.worker._backend.notifier.listening.wait()
        task_id = await client.submit_task(deaf)
        await watched.until(TaskStarted)
        await client.cancel_task(task_id)
        ended = await watched.ended(task_id)
        assert not release.is_set(), "it is settled though its thread goes on"
        await watched.until(SlotStuck)
        release.set()
    assert (ended.state, "longer than its timeout of 5 s" in str(ended.error)) == ("cancelled", True)


async def test_cancelled_thread_is_settled_when_its_worker_stops(config: Config) -> None:
    release = threading.Event()

    @task
    def deaf() -> None:
        release.wait(60)

    client = AsyncClient(config)
    try:
        async with working(config.with_changes(shutdown_grace_seconds=0.1)) as watched:
            await watched.worker._backend.notifier.listening.wait()
            task_id = await client.submit_task(deaf)
            await watched.until(TaskStarted)
            await client.cancel_task(task_id)
            [attempt] = watched.worker._runner.running
            await soon(lambda: attempt.context().cancelled)
            watched.worker.stop()
            assert watched.finished is not None
            await watched.finished
        assert not release.is_set(), "the worker has ended though the thread goes on"
    finally:
        release.set()
    row = await client.get_task(task_id)
    assert row is not None
    assert row.state == "cancelled"


async def test_finished_task_is_not_cancelled_and_can_be_replayed(config: Config) -> None:
    @task
    async def work() -> int:
        return current_task().token

    client = AsyncClient(config)
    async with working(config) as watched:
        task_id = await client.submit_task(work)
        await watched.ended(task_id, "completed")
        assert await client.cancel_task(task_id) == "completed"
        await client.replay_task(task_id)
        await watched.until(TaskStarted, count=2)
        assert await client.wait_for(task_id, timeout=120) == 2


async def test_replay_and_cancel_of_the_wrong_task_say_why(config: Config) -> None:
    from uuid import uuid4

    @task
    async def work() -> None: ...

    client = AsyncClient(config)
    task_id = await client.submit_task(work)
    with pytest.raises(InvalidOption, match="is pending; only a completed, cancelled or dead_letter task"):
        await client.replay_task(task_id)
    with pytest.raises(TaskNotFound, match="no task has the id"):
        await client.cancel_task(uuid4())
    with pytest.raises(TaskNotFound, match="no task has the id"):
        await client.replay_task(uuid4())

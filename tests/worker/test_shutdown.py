"""Stopping a worker: drain first; then, or when told twice, give everything back without using a retry."""

from __future__ import annotations

import asyncio
import threading

import psycopg

from tasklib import AsyncClient, Config, current_task, task
from tasklib.events import TaskEnded, TaskStarted, WorkerDraining, WorkerStopped
from tests.worker.watching import working


async def test_stop_lets_running_work_finish_and_claims_nothing_more(config: Config) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @task
    async def work() -> str:
        started.set()
        await go_on.wait()
        return "finished"

    client = AsyncClient(config)
    running = await client.submit_task(work)
    async with working(config, concurrency=1) as watched:
        await started.wait()
        waiting = await client.submit_task(work)
        watched.worker.stop()
        await watched.until(WorkerDraining)
        go_on.set()
        await watched.until(WorkerStopped)
    assert await client.wait_for(running) == "finished"
    row = await client.get_task(waiting)
    assert row is not None
    assert (row.state, row.lease_token) == ("pending", 0)


async def test_second_stop_cancels_running_work_and_gives_it_back_without_a_retry(config: Config) -> None:
    cleaned, thread_goes_on, in_thread = asyncio.Event(), threading.Event(), threading.Event()

    @task
    async def on_loop() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    @task
    def in_a_thread() -> None:
        in_thread.set()
        thread_goes_on.wait(120)

    client = AsyncClient(config)
    ids = [await client.submit_task(on_loop), await client.submit_task(in_a_thread)]
    async with working(config) as watched:
        await watched.until(TaskStarted, count=2)
        await asyncio.to_thread(in_thread.wait, 10)
        watched.worker.stop()
        await watched.until(WorkerDraining)
        watched.worker.stop()
        await watched.until(WorkerStopped)
    assert cleaned.is_set()
    for task_id in ids:
        row = await client.get_task(task_id)
        assert row is not None
        assert (row.state, row.retry_count, row.worker_id) == ("pending", 0, None)
    thread_goes_on.set()


async def test_grace_period_ends_the_drain(config: Config) -> None:
    @task
    async def forever() -> None:
        await asyncio.Event().wait()

    client = AsyncClient(config)
    task_id = await client.submit_task(forever)
    async with working(config.with_changes(shutdown_grace_seconds=0.1)) as watched:
        await watched.until(TaskStarted)
        watched.worker.stop()
        await watched.until(WorkerStopped)
        # A claim that was under way may bring it once more; that one is given back too.
        assert {e.state for e in watched.all(TaskEnded)} == {"pending"}
        assert len(watched.all(TaskStarted)) == 1
    row = await client.get_task(task_id)
    assert row is not None
    assert (row.state, row.retry_count) == ("pending", 0)


async def test_released_retry_is_a_retry_again_and_the_token_keeps_growing(
    config: Config, db: psycopg.Connection
) -> None:
    """A release gives a task back just as it was claimed."""
    first = asyncio.Event()

    @task
    async def work() -> None:
        if current_task().attempt == 1:
            raise ValueError
        first.set()
        await asyncio.Event().wait()

    client = AsyncClient(config)
    task_id = await client.submit_task(work)
    async with working(config.with_changes(base_retry_delay_seconds=0)) as watched:
        await first.wait()
        watched.worker.stop()
        watched.worker.stop()
        await watched.until(WorkerStopped)
    row = await client.get_task(task_id)
    assert row is not None
    assert (row.state, row.retry_count, row.lease_token) == ("failed", 1, 2)
    assert row.next_retry_at is not None


async def test_attempt_interrupted_before_its_first_step_is_given_back(config: Config) -> None:
    @task
    async def work() -> None: ...

    client = AsyncClient(config)
    async with working(config) as watched:
        # Told to stop at once in the very moment in which the task is started.
        watched.worker.events.subscribe(lambda e: watched.worker.stop() if isinstance(e, TaskStarted) else None)
        watched.worker.events.subscribe(lambda e: watched.stop_attempts() if isinstance(e, TaskStarted) else None)
        task_id = await client.submit_task(work)
        await watched.until(WorkerStopped)
        # A claim that was under way may bring it once more; that one is given back too.
        assert {e.state for e in watched.all(TaskEnded)} == {"pending"}
        assert len(watched.all(TaskStarted)) == 1
    row = await client.get_task(task_id)
    assert row is not None
    assert (row.state, row.retry_count) == ("pending", 0)


async def test_cancelling_the_worker_gives_running_work_back(config: Config) -> None:
    started = asyncio.Event()

    @task
    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    client = AsyncClient(config)
    task_id = await client.submit_task(forever)
    from tasklib import Worker

    running = asyncio.create_task(Worker(config).run())
    await started.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    row = await client.get_task(task_id)
    assert row is not None
    assert row.state == "pending"


async def test_released_work_wakes_another_worker(config: Config) -> None:
    turns: list[str] = []

    @task
    async def work() -> None:
        turns.append(current_task().worker_id)
        if len(turns) == 1:
            await asyncio.Event().wait()

    client = AsyncClient(config)
    async with working(config, concurrency=1) as first:
        await client.submit_task(work)
        await first.until(TaskStarted)
        async with working(config, poll_interval_seconds=1000.0) as second:
            await second.worker._backend.notifier.listening.wait()
            first.worker.stop()
            first.worker.stop()
            await second.until(TaskEnded)
    assert len(set(turns)) == 2

"""Retries: when a failed attempt is made again, and when the task is given up."""

from __future__ import annotations

import datetime as dt

import psycopg
import pytest

import tasklib
from tasklib import AsyncClient, Config, Reject, Retry, RetryPolicy, task
from tasklib.events import TaskEnded
from tests.worker.watching import burst


@pytest.fixture
async def client(config: Config) -> AsyncClient:
    return AsyncClient(config)


async def test_failed_attempt_is_retried_with_growing_delays_and_then_given_up(
    config: Config, client: AsyncClient, db: psycopg.Connection
) -> None:
    @task(max_retries=2)
    async def boom() -> None:
        raise ValueError("no luck")

    task_id = await client.submit_task(boom)
    waits = []
    for _ in range(3):
        await burst(config)
        row = await client.get_task(task_id)
        assert row is not None
        assert row.state in ("failed", "dead_letter")
        if row.state == "failed":
            assert row.next_retry_at is not None
            assert row.started_at is not None
            waits.append(
                db.execute("SELECT next_retry_at - (history->-1->>'ended_at')::timestamptz FROM tasks").fetchone()[0]
            )
            db.execute("UPDATE tasks SET next_retry_at = now()")
    assert waits == [dt.timedelta(seconds=5), dt.timedelta(seconds=10)]
    row = await client.get_task(task_id)
    assert row is not None
    assert (row.state, row.retry_count, row.next_retry_at) == ("dead_letter", 2, None)
    assert row.completed_at is not None
    assert 'raise ValueError("no luck")' in str(row.error)
    assert "tasklib/executors" not in str(row.error), "our own frames are not the user's business"
    assert [h["outcome"] for h in row.history or []] == ["error"] * 3
    assert [h["attempt"] for h in row.history or []] == [1, 2, 3]
    with pytest.raises(tasklib.errors.TaskFailed, match="ValueError: no luck"):
        await client.wait_for(task_id)


async def test_task_may_say_when_to_retry(config: Config, client: AsyncClient, db: psycopg.Connection) -> None:
    @task
    async def later() -> None:
        raise Retry(in_=1234)

    await client.submit_task(later)
    watched = await burst(config)
    assert watched.all(TaskEnded)[0].retry_in_seconds == 1234
    row = db.execute("SELECT state, retry_count, next_retry_at - now() > '1200 s' FROM tasks").fetchone()
    assert row == ("failed", 1, True)


async def test_rejected_task_goes_straight_to_dead_letter(config: Config, client: AsyncClient) -> None:
    @task
    async def stolen() -> None:
        raise Reject("card was stolen")

    task_id = await client.submit_task(stolen)
    await burst(config)
    row = await client.get_task(task_id)
    assert row is not None
    assert (row.state, row.retry_count) == ("dead_letter", 0)
    assert "card was stolen" in str(row.error)


async def test_non_retriable_exception_is_not_retried(config: Config, client: AsyncClient) -> None:
    @task(non_retriable=(LookupError,))
    def miss() -> None:
        raise KeyError("gone")

    task_id = await client.submit_task(miss)
    await burst(config)
    row = await client.get_task(task_id)
    assert row is not None
    assert (row.state, row.retry_count) == ("dead_letter", 0)


async def test_policy_of_the_task_function_decides_the_delay(config: Config, client: AsyncClient) -> None:
    @task(retry_policy=RetryPolicy(base_seconds=100, multiplier=3, jitter=0))
    async def boom() -> None:
        raise ValueError

    await client.submit_task(boom)
    watched = await burst(config)
    assert watched.all(TaskEnded)[0].retry_in_seconds == 100

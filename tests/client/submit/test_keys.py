"""Idempotency keys: one task for each, whoever else submits it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tasklib import Client, Config, task
from tests.client.conftest import Either
from tests.client.submit.stored import count, row, rows


async def test_a_key_belongs_to_a_name(either: Either, greet: Any, db: Any) -> None:
    @task
    def other(name: str) -> None: ...

    first = await either.submit_task(greet, name="a", idempotency_key="k")
    assert await either.submit_task(greet, name="b", idempotency_key="k") == first
    assert await either.submit_task(other, name="a", idempotency_key="k") != first
    assert await either.submit_task(greet, name="a", idempotency_key="K") != first
    assert count(db) == 3


def test_a_key_that_is_new_for_one_name_and_known_for_another_gives_both_tasks(client: Client, greet: Any) -> None:
    @task
    def other(name: str) -> None: ...

    known = client.submit_task(other, name="a", idempotency_key="k")
    batch = [function.options(idempotency_key="k").bind(name="a") for function in (greet, other)]
    new, again = client.submit_many(batch)
    assert again == known
    assert new != known


@pytest.mark.parametrize(
    "ended",
    [
        "state = 'completed', completed_at = now()",
        "state = 'dead_letter', completed_at = now()",
        "state = 'cancelled', completed_at = now()",
        "state = 'running', worker_id = 'w', locked_until = now()",
        "state = 'failed', next_retry_at = now()",
    ],
)
def test_a_key_holds_whatever_became_of_the_task(ended: str, client: Client, greet: Any, db: Any) -> None:
    first = client.submit_task(greet, name="a", idempotency_key="k")
    db.execute(f"UPDATE tasks SET {ended}")
    assert client.submit_task(greet, name="b", idempotency_key="k") == first
    assert count(db) == 1


async def test_a_key_is_free_again_after_its_window(either: Either, greet: Any, db: Any) -> None:
    first = await either.submit_task(greet, name="a", idempotency_key="k")
    db.execute("UPDATE tasks SET idempotency_expires_at = now() - interval '1 second'")
    second = await either.submit_task(greet, name="b", idempotency_key="k")
    assert second != first
    assert await either.submit_task(greet, name="c", idempotency_key="k") == second
    assert [r["idempotency_key"] for r in rows(db)] == [None, "k"]


def test_the_window_is_configuration(config: Config, greet: Any, db: Any) -> None:
    with Client(config.with_changes(idempotency_window_seconds=5)) as client:
        r = row(db, client.submit_task(greet, name="a", idempotency_key="k"))
    assert r["idempotency_expires_at"] - r["created_at"] == timedelta(seconds=5)


def test_a_race_for_one_key_has_one_winner(client: Client, greet: Any, db: Any) -> None:
    start = threading.Barrier(8)

    def submit(n: int) -> UUID:
        start.wait()
        return client.submit_task(greet, name=str(n), idempotency_key="k")

    with ThreadPoolExecutor(8) as threads:
        for _ in range(5):
            assert len(set(threads.map(submit, range(8)))) == 1
    assert count(db) == 1


def test_batches_with_the_same_keys_in_any_order_dont_wait_for_each_other(client: Client, greet: Any, db: Any) -> None:
    start = threading.Barrier(4)

    def submit(n: int) -> set[UUID]:
        keys = [f"k{i}" for i in range(200)]
        if n % 2:
            keys.reverse()
        batch = [greet.options(idempotency_key=k).bind(name=str(n)) for k in keys]
        start.wait()
        return set(client.submit_many(batch))

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(submit, range(4)))
    assert all(ids == answers[0] for ids in answers)
    assert count(db) == 200

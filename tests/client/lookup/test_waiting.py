"""Waiting for the end of a task."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any
from uuid import uuid4

import pytest

from tasklib import AsyncClient, Client, Config
from tasklib.errors import InvalidOption, TaskCancelled, TaskFailed, TaskNotFound, WaitTimeout
from tests.client.conftest import Either
from tests.client.lookup.states import put


@pytest.mark.parametrize("value", [42, None, "text", [1, {"a": None}], {"value": 1}, 1.5, False])
async def test_wait_for_returns_the_result(value: Any, either: Either, greet: Any, db: Any) -> None:
    task_id = await either.submit_task(greet, name="a")
    db.execute(
        "UPDATE tasks SET state = 'completed', completed_at = now(), result = %s::jsonb", [json.dumps({"value": value})]
    )
    assert await either.wait_for(task_id) == value
    assert await either.wait_for(str(task_id), timeout=0) == value


async def test_wait_for_a_dead_letter_raises_with_the_traceback_of_the_worker(
    either: Either, greet: Any, db: Any
) -> None:
    task_id = await either.submit_task(greet, name="a")
    put(db, task_id, "dead_letter")
    expected = rf"^task greet \({task_id}\) failed for good\.\n\nOn the worker:\nTraceback: boom at line 1$"
    with pytest.raises(TaskFailed, match=expected) as caught:
        await either.wait_for(task_id)
    assert caught.value.remote_traceback == "Traceback: boom at line 1"
    assert (caught.value.task_id, caught.value.name) == (task_id, "greet")


async def test_wait_for_a_cancelled_task_raises(either: Either, greet: Any, db: Any) -> None:
    task_id = await either.submit_task(greet, name="a")
    put(db, task_id, "cancelled")
    with pytest.raises(TaskCancelled, match=rf"task greet \({task_id}\) was cancelled") as caught:
        await either.wait_for(task_id)
    assert (caught.value.task_id, caught.value.name) == (task_id, "greet")


@pytest.mark.parametrize("state", ["pending", "running", "failed"])
async def test_wait_for_gives_up_in_time_and_leaves_the_task_alone(
    state: str, either: Either, greet: Any, db: Any
) -> None:
    task_id = await either.submit_task(greet, name="a")
    put(db, task_id, state)
    before = db.execute("SELECT tasks::text FROM tasks").fetchone()
    with pytest.raises(
        WaitTimeout, match=rf"{task_id} is still {state} after 0\.05 s\. The task is not stopped"
    ) as caught:
        await either.wait_for(task_id, timeout=0.05)
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.task_id, caught.value.state) == (task_id, state)
    assert db.execute("SELECT tasks::text FROM tasks").fetchone() == before


async def test_wait_for_without_patience_looks_once(either: Either, greet: Any) -> None:
    task_id = await either.submit_task(greet, name="a")
    with pytest.raises(WaitTimeout, match="still pending after 0 s"):
        await either.wait_for(task_id, timeout=0)


async def test_wait_for_an_id_that_no_task_has(either: Either) -> None:
    task_id = uuid4()
    with pytest.raises(TaskNotFound, match=f"no task has the id {task_id}; it may have been deleted") as caught:
        await either.wait_for(task_id, timeout=5)
    assert caught.value.task_id == task_id


@pytest.mark.parametrize("wrong", [-1, float("nan"), "soon", True])
async def test_a_timeout_that_makes_no_sense_is_explained(wrong: Any, either: Either) -> None:
    with pytest.raises(InvalidOption, match=f"timeout must be 0 seconds or more, not {wrong!r}"):
        await either.wait_for(uuid4(), timeout=wrong)


class Watched(Client):
    """A client that says when it has looked at a task that was not done yet."""

    looked = threading.Event()

    def _do(self, effect: Any) -> Any:
        answer = super()._do(effect)
        if getattr(answer, "state", None) == "running":
            self.looked.set()
        return answer


def test_wait_for_sees_a_task_that_ends_while_it_waits(config: Config, greet: Any, db: Any) -> None:
    with Watched(config) as client:
        client.looked.clear()
        task_id = client.submit_task(greet, name="a")
        put(db, task_id, "running")
        results: list[Any] = []
        waiting = threading.Thread(target=lambda: results.append(client.wait_for(task_id, timeout=120)))
        waiting.start()
        assert client.looked.wait(120)
        db.execute(
            "UPDATE tasks SET state = 'completed', result = '{\"value\": 7}', completed_at = now(), "
            "worker_id = NULL, locked_until = NULL"
        )
        waiting.join(120)
    assert results == [7]


async def test_a_cancelled_wait_stops_at_once(async_client: AsyncClient, greet: Any) -> None:
    task_id = await async_client.submit_task(greet, name="a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await async_client.wait_for(task_id)
    assert (await async_client.get_task(task_id)) is not None, "the client still works"

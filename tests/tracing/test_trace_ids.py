"""Every task has a trace id, by every way to submit it."""

from __future__ import annotations

from typing import Any

import psycopg

from tasklib import Client, Config, current_task, task
from tasklib.events import TaskEnded, TaskStarted
from tests.worker.watching import working


async def test_a_task_submitted_without_a_trace_has_one_of_its_own_everywhere(
    config: Config, db: psycopg.Connection
) -> None:
    seen: list[Any] = []

    @task
    async def traced() -> None:
        seen.append(current_task().trace_id)

    with Client(config) as client:
        task_id = client.submit_task(traced)
        found = client.get_task(task_id)
    assert found is not None
    async with working(config) as watched:
        started, ended = await watched.until(TaskStarted), await watched.until(TaskEnded)
    own = task_id.hex
    assert (found.trace_id, seen, started.trace_id, ended.trace_id) == (own, [own], own, own)
    assert db.execute("SELECT trace_context FROM tasks").fetchone() == (None,), "and nothing is stored for it"


def test_so_has_a_row_that_was_inserted_by_hand(config: Config, db: psycopg.Connection) -> None:
    (task_id,) = db.execute("INSERT INTO tasks (name) VALUES ('a') RETURNING id").fetchone() or (None,)
    with Client(config) as client:
        found = client.get_task(task_id)
    assert found is not None
    assert found.trace_id == found.id.hex

"""Inline mode at its edges: what is not run, what needs a table, where the mode begins and ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tasklib
from tasklib import Config, TaskState, current_task, task
from tasklib.config import Level
from tasklib.errors import NotInitialized, TaskCancelled, TaskLibError, TaskNotFound
from tasklib.testing import Inline, inline


@pytest.fixture(autouse=True)
def _no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)


@pytest.fixture
def ran() -> Iterator[Inline]:
    with inline() as ran:
        yield ran


def test_same_idempotency_key_runs_once_and_gives_the_same_id(ran: Inline) -> None:
    @task
    def charge(n: int) -> int:
        return n

    once = charge.options(idempotency_key="k")
    assert once.submit_sync(1) == once.submit_sync(2)
    assert tasklib.sync.submit_many([once.bind(3), charge.bind(4)])[0] == ran.tasks[0].id
    assert [t.result for t in ran.tasks] == [1, 4]


def test_submit_many_checks_all_before_it_runs_any(ran: Inline) -> None:
    @task
    def double(n: int) -> int:
        return 2 * n

    with pytest.raises(tasklib.errors.TaskExecutionError, match="n: "):
        tasklib.sync.submit_many(double, [{"n": 1}, {"n": "x"}])
    assert ran.tasks == []


def test_name_of_another_program_is_recorded_and_not_run(ran: Inline) -> None:
    task_id = tasklib.sync.submit_task("billing.charge", registered_elsewhere=True, amount=5)
    assert [(t.name, t.kwargs, t.state) for t in ran.tasks] == [("billing.charge", {"amount": 5}, TaskState.PENDING)]
    with pytest.raises(TaskNotFound, match="recorded it but not run it"):
        tasklib.sync.wait_for(task_id)


def test_cancelling_comes_too_late_for_what_has_run_and_in_time_for_what_has_not(ran: Inline) -> None:
    @task
    def nothing() -> None: ...

    assert tasklib.sync.cancel_task(nothing.submit_sync()) is TaskState.COMPLETED
    waiting = tasklib.sync.submit_task("billing.charge", registered_elsewhere=True)
    assert tasklib.sync.cancel_task(waiting) is TaskState.CANCELLED
    with pytest.raises(TaskCancelled):
        tasklib.sync.wait_for(waiting)


def test_transactional_task_receives_the_connection_of_inline_mode() -> None:
    @task(transactional=True)
    def save(connection: Any, n: int) -> str:
        return f"{connection}{n}"

    with inline(connection="a connection") as ran:
        tasklib.sync.submit_task(save, n=1)
    assert ran.tasks[0].result == "a connection1"


def test_transactional_task_without_a_connection_is_refused_with_the_way_out(ran: Inline) -> None:
    @task(transactional=True)
    def save(connection: Any) -> None: ...

    with pytest.raises(TaskLibError, match=r"save is transactional.*inline\(connection=\.\.\.\)"):
        tasklib.sync.submit_task(save)
    assert ran.tasks == []


def test_what_needs_a_table_says_so(ran: Inline) -> None:
    with pytest.raises(TaskLibError, match="inline mode has no database, so it can't do 'list'"):
        tasklib.sync.list_tasks()
    assert tasklib.sync.get_task("0190a000-0000-7000-8000-000000000000") is None


def test_init_and_close_inside_the_block_change_the_configuration_only(ran: Inline) -> None:
    @task
    def level() -> int:
        return current_task().max_attempts

    tasklib.init(Config("postgresql://nobody@nowhere.invalid/x", levels={"urgent": Level(90, 8, 60)}))
    level.options(priority="urgent").submit_sync()
    tasklib.close()
    level.submit_sync()
    assert [t.result for t in ran.tasks] == [9, 4]


def test_mode_ends_with_its_block() -> None:
    @task
    def nothing() -> None: ...

    with inline() as outer:
        nothing.submit_sync()
        with inline() as inner:
            nothing.submit_sync()
        nothing.submit_sync()
    assert (len(outer.tasks), len(inner.tasks)) == (2, 1)
    with pytest.raises(NotInitialized):
        nothing.submit_sync()


def test_other_threads_are_in_the_mode_too(ran: Inline) -> None:
    @task
    def nothing() -> None: ...

    thread = threading.Thread(target=nothing.submit_sync)
    thread.start()
    thread.join()
    assert [t.state for t in ran.tasks] == [TaskState.COMPLETED]


async def test_awaited_submissions_run_side_by_side(ran: Inline) -> None:
    met = asyncio.Barrier(2)

    @task
    async def meet() -> None:
        await met.wait()

    async with asyncio.timeout(120):
        await asyncio.gather(meet.submit(), meet.submit())
    assert [t.state for t in ran.tasks] == [TaskState.COMPLETED] * 2

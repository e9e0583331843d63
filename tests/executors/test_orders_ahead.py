"""Orders that a child has before the one it runs has ended: begun without waiting for the worker, or taken back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import process_tasks as tasks
import pytest
from process_children import CONFIG, Running, context, exists, value

from tasklib import TaskFunction
from tasklib.executors.children import TakenBack
from tasklib.executors.outcomes import Done, Failed, FailureKind
from tasklib.executors.processes import Ahead, ProcessExecutor

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Next:
    """An order behind the one that a child runs."""

    def __init__(self, executor: ProcessExecutor, function: TaskFunction[Any, Any], **kwargs: Any) -> None:
        self.has_turn = False
        text = function.arguments.to_json(kwargs)
        ahead = executor.hand_ahead(function, text, context(function.name), lambda name: True, turn=self._turn)
        assert ahead is not None
        self.ahead: Ahead = ahead
        self.task = asyncio.create_task(executor.run_ahead(ahead))

    def _turn(self) -> None:
        self.has_turn = True


async def test_next_order_begins_in_the_same_child_when_the_one_before_has_ended(
    executor: ProcessExecutor, tmp_path: Path
) -> None:
    present = Running(executor, tasks.wait_for_file, path=tmp_path / "go")
    pid = await present.begun()
    behind = Next(executor, tasks.pid)
    assert not executor.can_hand_ahead, "one order behind the present one is all that a child has"
    (tmp_path / "go").touch()
    outcome = await behind.task
    assert isinstance(outcome, Done)
    assert json.loads(outcome.result)["value"] == pid
    assert behind.has_turn
    assert isinstance(present.task.result(), Done)
    assert await value(executor, tasks.pid) == pid, "the child is free again, once"
    assert not behind.ahead.take_back()


async def test_order_that_was_taken_back_is_never_begun(executor: ProcessExecutor, tmp_path: Path) -> None:
    present = Running(executor, tasks.wait_for_file, path=tmp_path / "go")
    pid = await present.begun()
    behind = Next(executor, tasks.begin, path=tmp_path / "begun", how="ends")
    assert behind.ahead.take_back()
    assert isinstance(await behind.task, TakenBack)
    (tmp_path / "go").touch()
    assert isinstance(await present.task, Done)
    assert await value(executor, tasks.pid) == pid
    assert not (tmp_path / "begun").exists()
    assert not behind.has_turn


@pytest.mark.parametrize("end", ["the child is killed", "the present one is cancelled"])
async def test_next_order_is_not_begun_when_its_child_is_ended(
    executor: ProcessExecutor, tmp_path: Path, end: str
) -> None:
    present = Running(executor, tasks.wait_for_file, path=tmp_path / "never")
    pid = await present.begun()
    behind = Next(executor, tasks.begin, path=tmp_path / "begun", how="ends")
    if end == "the child is killed":
        os.kill(pid, signal.SIGKILL)
        crashed = await present.task
        assert isinstance(crashed, Failed)
        assert crashed.kind is FailureKind.CRASH
    else:
        await present.cancel()
    assert isinstance(await behind.task, TakenBack)
    assert not (tmp_path / "begun").exists()
    assert await value(executor, tasks.pid) != pid


async def test_next_order_cancelled_leaves_the_present_one_alone(executor: ProcessExecutor, tmp_path: Path) -> None:
    present = Running(executor, tasks.wait_for_file, path=tmp_path / "go")
    pid = await present.begun()
    behind = Next(executor, tasks.begin, path=tmp_path / "begun", how="ends")
    await asyncio.sleep(0)  # it waits for its outcome
    behind.task.cancel()
    assert isinstance(await behind.task, TakenBack)
    (tmp_path / "go").touch()
    assert isinstance(await present.task, Done)
    assert exists(pid)
    assert not (tmp_path / "begun").exists()


async def test_cancellation_that_comes_after_the_child_has_gone_on_harms_neither(
    executor: ProcessExecutor, tmp_path: Path
) -> None:
    present = Running(executor, tasks.wait_for_file, path=tmp_path / "go")
    pid = await present.begun()
    behind = Next(executor, tasks.begin, path=tmp_path / "begun", how="ends")
    await asyncio.sleep(0)
    (tmp_path / "go").touch()
    deadline = time.monotonic() + 120
    while not (tmp_path / "begun").exists():  # while this loop stands still and reads nothing
        assert time.monotonic() < deadline
        time.sleep(0.01)  # noqa: ASYNC251
    present.task.cancel()
    assert isinstance(await present.task, Done), "it had ended before"
    assert isinstance(await behind.task, Done)
    assert await value(executor, tasks.pid) == pid


async def test_child_that_is_killed_while_it_runs_the_next_order_costs_that_one_alone(
    executor: ProcessExecutor, tmp_path: Path
) -> None:
    present = Running(executor, tasks.wait_for_file, path=tmp_path / "go")
    await present.begun()
    behind = Next(executor, tasks.die, how="SIGKILL")
    (tmp_path / "go").touch()
    outcome = await behind.task
    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.CRASH
    assert isinstance(present.task.result(), Done)


async def test_next_order_is_within_the_tasks_that_a_child_may_run(tmp_path: Path) -> None:
    executor = ProcessExecutor(CONFIG.with_changes(process_max_tasks=2))
    present = Running(executor, tasks.wait_for_file, path=tmp_path / "go")
    pid = await present.begun()
    second = Next(executor, tasks.wait_for_file, path=tmp_path / "go on")
    (tmp_path / "go").touch()
    assert isinstance(await present.task, Done)
    assert second.has_turn
    text = tasks.pid.arguments.to_json({})
    assert executor.hand_ahead(tasks.pid, text, context("pid"), lambda name: True) is None
    (tmp_path / "go on").touch()
    assert isinstance(await second.task, Done)
    assert await value(executor, tasks.pid) != pid
    await executor.close()


@pytest.mark.parametrize("why", ["the present task takes long", "the order is long"])
async def test_no_order_is_handed_over_if_it_might_have_to_wait(
    executor: ProcessExecutor, tmp_path: Path, why: str
) -> None:
    present = Running(executor, tasks.wait_for_file, path=tmp_path / "go")
    await present.begun()
    kwargs = json.dumps({"text": "x" * (50_000 if why == "the order is long" else 1)})
    is_short = why != "the present task takes long"
    assert executor.hand_ahead(tasks.say, kwargs, context("say"), lambda name: is_short) is None
    (tmp_path / "go").touch()
    assert isinstance(await present.task, Done)

"""Children that die, are stopped, or lose their worker. Processes and files are waited for by their state."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import process_tasks as tasks
import pytest
from process_children import CONFIG, SOURCE, Running, exists, failure, held, runs, value

from tasklib import TaskFunction
from tasklib.executors.outcomes import Done, FailureKind
from tasklib.executors.processes import ProcessExecutor
from tests.eventually import soon

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("how", "text"), [("exit", "exit code 3"), ("SIGKILL", "signal SIGKILL"), ("SIGSEGV", "signal SIGSEGV")]
)
async def test_child_that_dies_costs_only_its_attempt(executor: ProcessExecutor, how: str, text: str) -> None:
    before = await value(executor, tasks.pid)
    failed = await failure(executor, tasks.die, how=how)
    assert failed.error.startswith(f"WorkerLost: child process {before} died with {text} while running die.")
    assert (failed.kind, failed.retriable) == (FailureKind.CRASH, True)
    assert await value(executor, tasks.pid) != before


async def test_neighbours_of_a_dying_child_go_on(executor: ProcessExecutor, tmp_path: Path) -> None:
    neighbour = Running(executor, tasks.wait_for_file, path=tmp_path / "go")
    await neighbour.begun()
    assert (await failure(executor, tasks.die, how="SIGKILL")).kind is FailureKind.CRASH
    (tmp_path / "go").touch()
    assert isinstance(await neighbour.task, Done)


@pytest.mark.parametrize("is_noticed", [False, True], ids=["not yet noticed", "noticed"])
async def test_child_that_died_idle_is_replaced_silently(executor: ProcessExecutor, is_noticed: bool) -> None:
    before = await value(executor, tasks.pid)
    os.kill(before, signal.SIGKILL)
    if is_noticed:
        await soon(lambda: not exists(before), "reaped")
    assert await value(executor, tasks.pid) != before


async def test_death_is_seen_though_a_survivor_holds_the_socket(executor: ProcessExecutor, tmp_path: Path) -> None:
    try:
        async with asyncio.timeout(120):
            failed = await failure(executor, tasks.fork_that_holds_the_socket, until=tmp_path / "go")
    finally:
        (tmp_path / "go").touch()
    assert "exit code 4" in failed.error


async def test_forked_copy_that_returns_doesnt_answer(executor: ProcessExecutor) -> None:
    assert await value(executor, tasks.let_a_fork_return) == "from the child"
    assert isinstance(await value(executor, tasks.pid), int)


@pytest.mark.parametrize("length", [8, 2**31], ids=["nonsense", "more than it may say"])
async def test_task_that_talks_into_the_socket_has_crashed(executor: ProcessExecutor, length: int) -> None:
    failed = await failure(executor, tasks.babble, length=length)
    assert failed.kind is FailureKind.CRASH
    assert await value(executor, tasks.pid)


async def test_task_may_use_processes_of_its_own(executor: ProcessExecutor) -> None:
    assert await value(executor, tasks.pool) == [1, 4, 9]
    assert set(await value(executor, tasks.terminate_forks, count=20)) == {-signal.SIGTERM}


# ---- cancellation


@pytest.mark.parametrize("function", [tasks.ignore_sigterm, tasks.hold_the_interpreter])
async def test_child_that_doesnt_stop_is_killed(function: TaskFunction[Any, Any]) -> None:
    executor = ProcessExecutor(CONFIG.with_changes(process_kill_grace_seconds=0.3))
    attempt = Running(executor, function)
    pid = await attempt.begun()
    if function is tasks.hold_the_interpreter:
        await held(pid)
    assert await attempt.cancel() >= 0.3
    assert not exists(pid)
    assert await value(executor, tasks.pid) != pid
    await executor.close()


@pytest.mark.parametrize("function", [tasks.clean_up, tasks.clean_up_async])
async def test_finally_blocks_run_when_cancelled(function: TaskFunction[Any, Any], tmp_path: Path) -> None:
    executor = ProcessExecutor(CONFIG.with_changes(process_kill_grace_seconds=3600))
    attempt = Running(executor, function, path=tmp_path / "cleaned")
    pid = await attempt.begun()
    await attempt.cancel()
    assert not exists(pid)
    assert (tmp_path / "cleaned").read_text() == "cancelled=True"
    assert await value(executor, tasks.pid) != pid
    await executor.close()


async def test_sigterm_from_elsewhere_leaves_a_task_running(executor: ProcessExecutor, tmp_path: Path) -> None:
    # A service manager that stops the service signals all its processes; the worker lets tasks finish.
    attempt = Running(executor, tasks.wait_for_file, path=tmp_path / "go")
    os.kill(await attempt.begun(), signal.SIGTERM)
    (tmp_path / "go").touch()
    assert isinstance(await attempt.task, Done)


async def test_second_cancellation_doesnt_wait_and_close_does(tmp_path: Path) -> None:
    executor = ProcessExecutor(CONFIG.with_changes(process_kill_grace_seconds=60))
    attempt = Running(executor, tasks.linger, path=tmp_path / "go")
    pid = await attempt.begun()
    attempt.task.cancel()
    await asyncio.sleep(0)  # one turn of the loop: the first cancellation is being handled
    await attempt.cancel()
    assert runs(pid)
    (tmp_path / "go").touch()
    await executor.close()
    assert not exists(pid)


@pytest.mark.parametrize("end", ["cancel", "crash", "close"])
async def test_grandchild_dies_with_its_child(end: str) -> None:
    executor = ProcessExecutor(CONFIG)
    attempt = Running(executor, tasks.with_subprocess, end=end)
    pid, grandchild = await attempt.begun()
    if end == "cancel":
        await attempt.cancel()
    if end == "close":
        await executor.close()
    await asyncio.wait([attempt.task])
    await soon(lambda: not runs(pid) and not runs(grandchild), "both gone")
    await executor.close()


# ---- the worker's death

WORKER = """
import asyncio, os, sys, time, uuid
import process_tasks
from tasklib import Config, TaskContext
from tasklib.executors.processes import ProcessExecutor

async def main() -> None:
    executor = ProcessExecutor(Config("postgresql://"))
    context = TaskContext(uuid.uuid4(), "x", 1, 1, 1, "q", "w", _report=lambda text: print(text, flush=True))
    outcome = await executor.run(process_tasks.pid, "{}", context)
    if sys.argv[1] == "forked" and os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    if sys.argv[1] in ("idle", "forked"):
        print(outcome.result, flush=True)
        await asyncio.Event().wait()
    await executor.run(getattr(process_tasks, sys.argv[1]), sys.argv[2], context)

asyncio.run(main())
"""


@pytest.mark.parametrize("state", ["idle", "forked", "ignore_sigterm", "hold_the_interpreter", "with_subprocess"])
async def test_nothing_outlives_a_killed_worker(state: str) -> None:
    path = os.pathsep.join([SOURCE, str(Path(__file__).parent)])
    arguments = '{"end": "never"}' if state == "with_subprocess" else "{}"
    worker = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs on this loop
        [sys.executable, "-c", WORKER, state, arguments],
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with worker:
        assert worker.stdout is not None
        said = json.loads(worker.stdout.readline())
        pids = {"idle": lambda: [said["value"]], "forked": lambda: [said["value"]], "with_subprocess": lambda: said}
        doomed = pids.get(state, lambda: [said])()
        if state == "hold_the_interpreter":
            doomed.append(await held(said))
        assert all(runs(pid) for pid in doomed)
        worker.kill()
        worker.wait()
        await soon(lambda: not any(runs(pid) for pid in doomed), "child and grandchild are gone")

"""Real child processes: what a function gets there, what comes back, and which child runs it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import process_tasks as tasks
import pytest
from process_children import CONFIG, Running, children, context, exists, failure, run, value

from tasklib import TaskFunction
from tasklib.executors.outcomes import Done, Failed, FailureKind
from tasklib.executors.processes import ProcessExecutor
from tests.eventually import soon

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_arguments_arrive_typed_and_the_result_comes_back(executor: ProcessExecutor) -> None:
    when, key = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC), uuid4()
    order = tasks.Order(number=3, tags=["ä", "\U0001f600"])
    got = await value(executor, tasks.echo, when=when, key=key, order=order)
    assert got["types"] == ["datetime", "UUID", "Order"]
    assert datetime.fromisoformat(got["when"]) == when
    assert UUID(got["key"]) == key
    assert got["order"] == {"number": 3, "tags": ["ä", "\U0001f600"]}
    assert got["pid"] != os.getpid()


async def test_async_function_runs_in_a_child(executor: ProcessExecutor) -> None:
    assert await value(executor, tasks.pid_async) != os.getpid()


async def test_context_is_the_attempts_own(executor: ProcessExecutor) -> None:
    trace = {"traceparent": "00-1-2-01"}
    given = context("whoami", attempt=2, deadline=time.monotonic() + 60, trace_context=trace)
    outcome = await executor.run(tasks.whoami, "{}", given)
    assert isinstance(outcome, Done)
    seen = json.loads(outcome.result)["value"]
    assert 0 < seen.pop("left") < 60
    assert seen.pop("id") == str(given.id)
    assert seen == {field: getattr(given, field) for field in seen}
    assert (seen["attempt"], seen["token"], seen["trace_context"]) == (2, 7, trace)


async def test_context_variables_dont_reach_the_next_task(executor: ProcessExecutor) -> None:
    assert await value(executor, tasks.set_variable, value="first") == "none"
    assert await value(executor, tasks.set_variable, value="second") == "none"


@pytest.mark.parametrize("function", [tasks.fail, tasks.fail_async])
async def test_error_is_the_users_traceback_without_ours(
    executor: ProcessExecutor, function: TaskFunction[Any, Any]
) -> None:
    failed = await failure(executor, function, how="value")
    lines = failed.error.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "process_tasks.py" in lines[1]
    assert f"in {function.name}" in lines[1]
    assert "ValueError: no such thing" in lines[-1]
    assert "\x00" not in failed.error
    assert (failed.kind, failed.retriable) == (FailureKind.ERROR, True)


@pytest.mark.parametrize(
    ("how", "kind", "retriable", "delay"),
    [
        ("retry", FailureKind.RETRY, True, 90.0),
        ("reject", FailureKind.REJECTED, False, None),
        ("fatal", FailureKind.ERROR, False, None),
        ("exit", FailureKind.ERROR, True, None),
        ("interrupt", FailureKind.ERROR, True, None),
        ("generator", FailureKind.ERROR, True, None),
    ],
)
async def test_failure_is_classified_in_the_child(
    executor: ProcessExecutor, how: str, kind: FailureKind, retriable: bool, delay: float | None
) -> None:
    failed = await failure(executor, tasks.fail, how=how)
    assert (failed.kind, failed.retriable, failed.delay_seconds) == (kind, retriable, delay)


async def test_sys_exit_ends_the_attempt_and_not_the_child(
    fresh: ProcessExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    before = await value(fresh, tasks.pid)
    for function in (tasks.fail, tasks.fail_async):
        failed = await failure(fresh, function, how="exit")
        assert failed.error.endswith("SystemExit: 3")
        assert "sys.exit(3)" in failed.error
    assert await value(fresh, tasks.pid) == before
    assert capfd.readouterr().err == ""


async def test_async_function_that_cancels_itself_has_failed(executor: ProcessExecutor) -> None:
    assert "CancelledError" in (await failure(executor, tasks.fail_async, how="cancelled")).error


async def test_arguments_that_dont_fit_are_refused(executor: ProcessExecutor) -> None:
    outcome = await executor.run(tasks.report, '{"count": "many"}', context())
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("TaskExecutionError: the arguments don't fit report: count:")


async def test_result_obeys_the_workers_limit(executor: ProcessExecutor) -> None:
    assert len(await value(executor, tasks.result, size=CONFIG.max_payload_bytes - 12)) == CONFIG.max_payload_bytes - 12
    assert "ResultNotStorable" in (await failure(executor, tasks.result, size=CONFIG.max_payload_bytes)).error
    assert "ResultNotStorable" in (await failure(executor, tasks.result, size=1, storable=False)).error


async def test_progress_arrives_in_order_before_the_outcome(executor: ProcessExecutor) -> None:
    reports: list[str] = []
    outcome = await executor.run(tasks.report, '{"count": 500}', context(report=reports.append))
    assert isinstance(outcome, Done)
    assert [json.loads(text) for text in reports] == [{"step": i} for i in range(500)]


async def test_a_report_without_a_listener_is_no_error(executor: ProcessExecutor) -> None:
    assert await value(executor, tasks.report, count=1) is None


async def test_prints_reach_stdout_and_stderr_with_the_outcome(
    fresh: ProcessExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    await value(fresh, tasks.say, text="no newline")
    assert capfd.readouterr() == ("no newline", "NO NEWLINE")


# ---- children


async def test_idle_child_is_used_again_the_latest_first(fresh: ProcessExecutor, tmp_path: Path) -> None:
    attempts = [Running(fresh, tasks.wait_for_file, path=tmp_path / str(i)) for i in range(2)]
    pids = [await attempt.begun() for attempt in attempts]
    for i in (1, 0):
        (tmp_path / str(i)).touch()
        await attempts[i].task
    assert await value(fresh, tasks.pid) == pids[0]
    assert await value(fresh, tasks.pid) == pids[0]


async def test_child_is_replaced_after_so_many_tasks() -> None:
    before = children()
    executor = ProcessExecutor(CONFIG.with_changes(process_max_tasks=3))
    pids = [await value(executor, tasks.pid) for _ in range(7)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]
    await soon(lambda: not exists(pids[0]) and not exists(pids[3]), "the old ones have left")
    await executor.close()
    assert children() == before


async def test_eight_at_a_time_run_in_eight_children(fresh: ProcessExecutor, tmp_path: Path) -> None:
    attempts = [Running(fresh, tasks.wait_for_file, path=tmp_path / "go") for _ in range(8)]
    pids = {await attempt.begun() for attempt in attempts}
    assert len(pids) == 8
    (tmp_path / "go").touch()
    for attempt in attempts:
        assert isinstance(await attempt.task, Done)
    again = [Running(fresh, tasks.wait_for_file, path=tmp_path / "go again") for _ in range(8)]
    assert {await attempt.begun() for attempt in again} == pids
    (tmp_path / "go again").touch()
    for attempt in again:
        assert isinstance(await attempt.task, Done)


async def test_close_cancels_what_runs_and_leaves_no_process(tmp_path: Path) -> None:
    before = children()
    executor = ProcessExecutor(CONFIG)
    attempt = Running(executor, tasks.clean_up, path=tmp_path / "cleaned")
    await attempt.begun()
    await value(executor, tasks.pid)
    await executor.close()
    assert (tmp_path / "cleaned").exists()
    with pytest.raises(asyncio.CancelledError):
        await attempt.task
    assert children() == before
    with pytest.raises(RuntimeError, match="closed"):
        await run(executor, tasks.pid)


async def test_descriptors_dont_leak() -> None:
    async def ends_of_all_kinds() -> None:
        executor = ProcessExecutor(CONFIG.with_changes(process_max_tasks=2))
        attempt = Running(executor, tasks.clean_up, path=Path(os.devnull))
        await asyncio.gather(*(value(executor, tasks.pid) for _ in range(3)), failure(executor, tasks.die, how="exit"))
        await attempt.begun()
        await attempt.cancel()
        await asyncio.gather(*(value(executor, tasks.pid) for _ in range(3)))
        await executor.close()

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    await ends_of_all_kinds()
    before, processes = descriptors(), children()
    await ends_of_all_kinds()
    await soon(lambda: descriptors() <= before, "all descriptors closed")
    assert children() == processes


async def test_descriptors_dont_leak_in_a_child_that_runs_many_tasks() -> None:
    executor = ProcessExecutor(CONFIG.with_changes(process_max_tasks=1000))
    first = await value(executor, tasks.surroundings)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        await value(executor, tasks.pid_async)
    assert len(os.listdir("/proc/self/fd")) == before
    assert (await value(executor, tasks.surroundings))["descriptors"] == first["descriptors"]
    await executor.close()


async def test_child_has_the_workers_path_and_nothing_else_of_it(fresh: ProcessExecutor) -> None:
    seen = await value(fresh, tasks.surroundings)
    assert seen["path"] == sys.path
    assert seen["argv"] == sys.argv
    assert seen["pythonpath"] == os.environ.get("PYTHONPATH")
    assert seen["stdin"] == os.devnull
    assert seen["session"]
    # The standard three, the three sockets, the lifeline, and the directory being listed.
    assert len(seen["descriptors"]) == 8


async def test_report_of_a_thread_that_a_task_left_behind_is_not_taken_for_the_next_ones(
    executor: ProcessExecutor, tmp_path: Path
) -> None:
    assert await value(executor, tasks.leave_a_thread, path=tmp_path / "late") is None
    reports: list[Any] = []
    text = tasks.wait_for_file.arguments.to_json({"path": tmp_path / "go"})
    described = context("wait_for_file", lambda report: reports.append(json.loads(report)))
    running = asyncio.create_task(executor.run(tasks.wait_for_file, text, described))
    await soon(lambda: bool(reports), "it has begun")
    (tmp_path / "late").touch()
    await soon((tmp_path / "late.told").exists, "the thread has reported")
    (tmp_path / "go").touch()
    assert isinstance(await running, Done)
    assert len(reports) == 1

"""Real child processes. The tests wait for what the children report, and for processes and files by their state."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import process_tasks as tasks
import pytest
import pytest_asyncio

import tasklib
from tasklib import Config, TaskContext, TaskFunction
from tasklib.executors.outcomes import Done, Failed, Kind
from tasklib.executors.processes import ProcessExecutor
from tests.eventually import soon

CONFIG = Config("postgresql://nobody:secret@nowhere/none", process_kill_grace_seconds=5.0)
pytestmark = pytest.mark.asyncio(loop_scope="module")
SOURCE = str(Path(tasklib.__file__).parents[1])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor() -> AsyncIterator[ProcessExecutor]:
    """Shared: starting an interpreter takes longer than most tests."""
    made = ProcessExecutor(CONFIG)
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def fresh() -> AsyncIterator[ProcessExecutor]:
    """For tests that look at the children themselves."""
    made = ProcessExecutor(CONFIG)
    yield made
    await made.close()


def context(name: str = "test", report: Callable[[str], None] | None = None, **fields: Any) -> TaskContext:
    usual = {"attempt": 1, "max_attempts": 4, "token": 7, "queue": "default", "worker_id": "w1"}
    return TaskContext(**({"id": uuid4(), "name": name} | usual | fields), _report=report)


async def run(executor: ProcessExecutor, function: TaskFunction[Any, Any], **kwargs: Any) -> Done | Failed:
    return await executor.run(function, function.arguments.to_json(kwargs), context(function.name))


async def value(executor: ProcessExecutor, function: TaskFunction[Any, Any], **kwargs: Any) -> Any:
    outcome = await run(executor, function, **kwargs)
    assert isinstance(outcome, Done), outcome.error
    return json.loads(outcome.result)["value"]


async def failure(executor: ProcessExecutor, function: TaskFunction[Any, Any], **kwargs: Any) -> Failed:
    outcome = await run(executor, function, **kwargs)
    assert isinstance(outcome, Failed), outcome
    return outcome


class Running:
    """An attempt that goes on until it is stopped. Its first report says that it has begun."""

    def __init__(self, executor: ProcessExecutor, function: TaskFunction[Any, Any], **kwargs: Any) -> None:
        loop = asyncio.get_running_loop()
        self.report: asyncio.Future[Any] = loop.create_future()
        text = function.arguments.to_json(kwargs)
        self.task = asyncio.create_task(executor.run(function, text, context(function.name, self._reported)))

    def _reported(self, text: str) -> None:
        if not self.report.done():
            self.report.set_result(json.loads(text))

    async def begun(self) -> Any:
        async with asyncio.timeout(30):
            await asyncio.wait([self.report, self.task], return_when=asyncio.FIRST_COMPLETED)
        assert self.report.done(), self.task.result()
        return self.report.result()

    async def cancel(self) -> float:
        """Cancel it; how many seconds that took."""
        before = time.monotonic()
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task
        return time.monotonic() - before


async def held(pid: int) -> int:
    """Wait until the process holds its interpreter's lock; the process id of the shell it has started."""
    mark = tasks.holding(pid)
    await soon(mark.exists, "the lock is held")
    shell = int(mark.read_text())
    mark.unlink()
    return shell


def runs(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def children() -> set[str]:
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found.update((task / "children").read_text().split())
    return found


# ---- outcomes ----------------------------------------------------------------------------------------------


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
    assert await value(executor, tasks.pid_async, seconds=0.01) != os.getpid()


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
    assert (failed.kind, failed.retriable) == (Kind.ERROR, True)


@pytest.mark.parametrize(
    ("how", "kind", "retriable", "delay"),
    [
        ("retry", Kind.RETRY, True, 90.0),
        ("reject", Kind.REJECTED, False, None),
        ("fatal", Kind.ERROR, False, None),
        ("exit", Kind.ERROR, True, None),
        ("interrupt", Kind.ERROR, True, None),
        ("generator", Kind.ERROR, True, None),
    ],
)
async def test_failure_is_classified_in_the_child(
    executor: ProcessExecutor, how: str, kind: Kind, retriable: bool, delay: float | None
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


async def test_a_report_nobody_listens_to_is_no_error(executor: ProcessExecutor) -> None:
    assert await value(executor, tasks.report, count=1) is None


async def test_prints_reach_stdout_and_stderr_with_the_outcome(
    fresh: ProcessExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    await value(fresh, tasks.say, text="no newline")
    assert capfd.readouterr() == ("no newline", "NO NEWLINE")


# ---- death -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "text"), [("exit", "exit code 3"), ("SIGKILL", "signal SIGKILL"), ("SIGSEGV", "signal SIGSEGV")]
)
async def test_child_that_dies_costs_only_its_attempt(executor: ProcessExecutor, how: str, text: str) -> None:
    before = await value(executor, tasks.pid)
    failed = await failure(executor, tasks.die, how=how)
    assert failed.error.startswith(f"WorkerLost: child process {before} died with {text} while running die.")
    assert (failed.kind, failed.retriable) == (Kind.CRASH, True)
    assert await value(executor, tasks.pid) != before


async def test_neighbours_of_a_dying_child_go_on(executor: ProcessExecutor, tmp_path: Path) -> None:
    neighbour = Running(executor, tasks.wait_for_file, path=tmp_path / "go")
    await neighbour.begun()
    assert (await failure(executor, tasks.die, how="SIGKILL")).kind is Kind.CRASH
    (tmp_path / "go").touch()
    assert isinstance(await neighbour.task, Done)


@pytest.mark.parametrize("is_noticed", [False, True], ids=["not yet noticed", "noticed"])
async def test_child_that_died_idle_is_replaced_silently(executor: ProcessExecutor, is_noticed: bool) -> None:
    before = await value(executor, tasks.pid)
    os.kill(before, signal.SIGKILL)
    if is_noticed:
        await soon(lambda: not exists(before), "reaped")
    assert await value(executor, tasks.pid) != before


async def test_death_is_seen_though_a_survivor_holds_the_socket(executor: ProcessExecutor) -> None:
    async with asyncio.timeout(20):
        failed = await failure(executor, tasks.fork_that_holds_the_socket)
    assert "exit code 4" in failed.error


async def test_forked_copy_that_returns_doesnt_answer(executor: ProcessExecutor) -> None:
    assert await value(executor, tasks.let_a_fork_return) == "from the child"
    assert isinstance(await value(executor, tasks.pid), int)


async def test_child_that_dies_before_it_runs_the_task_is_no_crash_of_the_task(
    fresh: ProcessExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    failed = await failure(fresh, tasks.pid)
    assert "died with exit code 1 before it could run pid." in failed.error
    assert failed.kind is Kind.ERROR


async def test_task_that_talks_into_the_socket_has_crashed(executor: ProcessExecutor) -> None:
    failed = await failure(executor, tasks.babble)
    assert failed.kind is Kind.CRASH
    assert await value(executor, tasks.pid)


async def test_task_may_use_processes_of_its_own(executor: ProcessExecutor) -> None:
    assert await value(executor, tasks.pool) == [1, 4, 9]
    assert set(await value(executor, tasks.terminate_forks, count=20)) == {-signal.SIGTERM}


async def test_interpreter_that_cant_be_started_is_a_failed_attempt(
    fresh: ProcessExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    failed = await failure(fresh, tasks.pid)
    assert failed.error.startswith("WorkerLost: no child process could be started for pid:")
    assert failed.kind is Kind.ERROR
    monkeypatch.undo()
    assert await value(fresh, tasks.pid)


# ---- cancellation ------------------------------------------------------------------------------------------


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
async def test_finally_blocks_run_when_cancelled(
    executor: ProcessExecutor, function: TaskFunction[Any, Any], tmp_path: Path
) -> None:
    attempt = Running(executor, function, path=tmp_path / "cleaned")
    pid = await attempt.begun()
    assert await attempt.cancel() < CONFIG.process_kill_grace_seconds
    assert not exists(pid)
    assert (tmp_path / "cleaned").read_text() == "cancelled=True"
    assert await value(executor, tasks.pid) != pid


async def test_sigterm_from_elsewhere_leaves_a_task_running(executor: ProcessExecutor, tmp_path: Path) -> None:
    # A service manager that stops the service signals all its processes; the worker lets tasks finish.
    attempt = Running(executor, tasks.wait_for_file, path=tmp_path / "go")
    os.kill(await attempt.begun(), signal.SIGTERM)
    (tmp_path / "go").touch()
    assert isinstance(await attempt.task, Done)


async def test_cancelled_while_the_child_starts_leaves_nothing_behind(fresh: ProcessExecutor) -> None:
    before = children()
    attempt = Running(fresh, tasks.ignore_sigterm)
    await soon(lambda: children() > before, "started")
    await attempt.cancel()
    assert children() == before


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


# ---- children ----------------------------------------------------------------------------------------------


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
    again = await asyncio.gather(*(value(fresh, tasks.pid_async, seconds=0.05) for _ in range(8)))
    assert set(again) == pids


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
    # The standard three, the socket, the lifeline, and the directory being listed.
    assert len(seen["descriptors"]) == 6


# ---- finding the function ----------------------------------------------------------------------------------


async def test_module_that_cant_be_imported_fails_the_attempt_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    broken = tmp_path / "broken_module.py"
    broken.write_text("import os\nraise OSError('no disk')\n")
    executor = ProcessExecutor(CONFIG, ["broken_module"])
    failed = await failure(executor, tasks.pid)
    assert 'broken_module.py", line 2' in failed.error
    assert "OSError: no disk" in failed.error
    assert "importlib" not in failed.error
    assert (failed.kind, failed.retriable) == (Kind.ERROR, True)
    # The child is gone; the next one imports the repaired module.
    broken.write_text("repaired = True\n")
    assert await value(executor, tasks.pid)
    await executor.close()


async def test_modules_register_functions_whose_own_module_cant_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugin_loader.py").write_text(
        "from tasklib import task\ndef hidden() -> int:\n    return 5\n"
        "hidden.__module__ = 'nowhere'\ntask(executor='process')(hidden)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import plugin_loader  # noqa: F401 - found through sys.path, as in the worker

    hidden = tasklib.tasks.registry.get("hidden")
    executor = ProcessExecutor(CONFIG, ["plugin_loader"])
    assert await value(executor, hidden) == 5
    await executor.close()


async def test_function_that_importing_doesnt_register_is_named(executor: ProcessExecutor) -> None:
    failed = await failure(executor, tasks.make_local())
    assert failed.error.startswith("TaskNotFound: importing process_tasks in a child process didn't register")
    assert "top level" in failed.error


SCRIPT = """
import asyncio, json, sys, uuid
from pydantic import BaseModel
from tasklib import Config, TaskContext, task
from tasklib.executors.processes import ProcessExecutor

class Point(BaseModel):
    x: int

@task(executor="process")
def double(point: Point) -> dict[str, object]:
    return {"x": point.x * 2, "name": __name__, "is_main": sys.modules["__main__"].double is double}

async def main() -> None:
    executor = ProcessExecutor(Config("postgresql://"))
    context = TaskContext(uuid.uuid4(), "double", 1, 1, 1, "default", "w")
    outcome = await executor.run(double, '{"point": {"x": 21}}', context)
    print(getattr(outcome, "result", None) or outcome.error)
    await executor.close()

GUARDasyncio.run(main())
"""


@pytest.mark.parametrize("arguments", [["app.py"], ["-m", "app"], ["-m", "package"]], ids=" ".join)
async def test_function_of_a_main_script_is_found(arguments: list[str], tmp_path: Path) -> None:
    guarded = SCRIPT.replace("GUARD", 'if __name__ == "__main__":\n    ')
    (tmp_path / "app.py").write_text(guarded)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "__main__.py").write_text(guarded)
    out, err = await script(arguments, tmp_path)
    assert json.loads(out)["value"] == {"x": 42, "name": "__mp_main__", "is_main": True}
    assert err == ""


async def test_script_without_a_guard_is_told_to_have_one(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SCRIPT.replace("GUARD", ""))
    assert 'Start it under `if __name__ == "__main__":`' in (await script(["app.py"], tmp_path))[0]


async def test_function_of_an_interactive_session_is_told_to_move(tmp_path: Path) -> None:
    out, _ = await script(["-c", SCRIPT.replace("GUARD", "")], tmp_path)
    assert "Put it into a module." in out


async def test_modules_of_the_current_directory_dont_shadow_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "app.py").write_text(SCRIPT.replace("GUARD", 'if __name__ == "__main__":\n    '))
    (tmp_path / "struct.py").write_text("raise RuntimeError('the wrong struct')\n")
    assert '"x":42' in (await script([str(tmp_path / "app" / "app.py")], tmp_path))[0]


async def script(arguments: list[str], directory: Path) -> tuple[str, str]:
    """What a program prints to stdout and stderr."""
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        cwd=directory,
        env=os.environ | {"PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await program.communicate()
    return out.decode(), err.decode()


# ---- the worker's death ------------------------------------------------------------------------------------

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

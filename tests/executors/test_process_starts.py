"""How children start: from a template or anew, a few at a time; and that a start that fails is no attempt."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import process_tasks as tasks
import pytest
import pytest_asyncio
from process_children import CONFIG, Running, children, context, exists, run, runs, value

from tasklib.events import ChildrenSpawned, Event, Events
from tasklib.executors import processes
from tasklib.executors.child_protocol import Message, RunAttempt
from tasklib.executors.children import Child
from tasklib.executors.outcomes import Done, Failed, FailureKind, Released
from tasklib.executors.processes import ProcessExecutor
from tests.eventually import soon

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Heard:
    """An executor, and what it says."""

    def __init__(self, modules: tuple[str, ...] = (), **settings: Any) -> None:
        self.events: list[Event] = []
        events = Events()
        events.subscribe(self.events.append)
        self.executor = ProcessExecutor(CONFIG.with_changes(**settings), modules, events)

    @property
    def template(self) -> int:
        template = self.executor._template
        assert template is not None
        assert template._process is not None
        return template._process.pid


@pytest_asyncio.fixture(loop_scope="module")
async def heard() -> AsyncIterator[Heard]:
    made = Heard()
    yield made
    await made.executor.close()


async def given_back(heard: Heard) -> str:
    """Why a task was given back."""
    outcome = await run(heard.executor, tasks.pid)
    assert isinstance(outcome, Released)
    return outcome.reason


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# ---- the template


async def test_children_are_forked_from_one_template_that_has_the_modules(heard: Heard, tmp_path: Path) -> None:
    attempts = [Running(heard.executor, tasks.wait_for_file, path=tmp_path / "go") for _ in range(3)]
    pids = [await attempt.begun() for attempt in attempts]
    assert {parent(pid) for pid in pids} == {heard.template}
    (tmp_path / "go").touch()
    await asyncio.gather(*(attempt.task for attempt in attempts))


async def test_spawned_children_are_the_workers_own() -> None:
    heard = Heard(process_start="spawn")
    assert parent(await value(heard.executor, tasks.pid)) == os.getpid()
    await heard.executor.close()
    assert heard.events == []


async def test_module_is_imported_once_for_all_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "counted_import.py").write_text(
        "import pathlib\nwith pathlib.Path(__file__).with_suffix('.log').open('a') as log:\n    log.write('x')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    heard = Heard(("counted_import",), process_max_tasks=1)
    pids = {await value(heard.executor, tasks.pid) for _ in range(4)}
    await heard.executor.close()
    assert len(pids) == 4
    assert (tmp_path / "counted_import.log").read_text() == "x"


async def test_each_child_has_random_numbers_of_its_own() -> None:
    heard = Heard(process_max_tasks=1)
    numbers = {await value(heard.executor, tasks.random_number) for _ in range(3)}
    await heard.executor.close()
    assert len(numbers) == 3


async def test_what_modules_want_done_at_exit_is_not_done_by_each_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaves_word.py").write_text(
        "import atexit, os, pathlib\nlog = pathlib.Path(__file__).with_suffix('.log')\n"
        "atexit.register(lambda: log.write_text(log.read_text() + f'{os.getpid()} ' if log.exists() else ''))\n"
    )
    (tmp_path / "leaves_word.log").touch()
    monkeypatch.syspath_prepend(tmp_path)
    heard = Heard(("leaves_word",), process_max_tasks=1)
    for _ in range(2):
        await value(heard.executor, tasks.pid)
    template = heard.template
    await heard.executor.close()
    assert (tmp_path / "leaves_word.log").read_text() == f"{template} "


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_signals_for_the_whole_service_leave_the_template(heard: Heard, number: signal.Signals) -> None:
    await value(heard.executor, tasks.pid)
    template = heard.template
    os.kill(template, number)
    heard.executor._idle.pop().end()
    await value(heard.executor, tasks.pid)
    assert heard.template == template


async def test_child_ends_by_a_signal_as_any_process(heard: Heard) -> None:
    assert await value(heard.executor, tasks.signals_are_usual) == [True, True]


async def test_attempt_goes_on_when_the_template_dies_and_the_next_child_has_a_new_one(
    heard: Heard, tmp_path: Path
) -> None:
    attempt = Running(heard.executor, tasks.wait_for_file, path=tmp_path / "go")
    await attempt.begun()
    before = heard.template
    os.kill(before, signal.SIGKILL)
    assert await value(heard.executor, tasks.pid)
    assert heard.template != before
    (tmp_path / "go").touch()
    assert isinstance(await attempt.task, Done)
    assert heard.events == []


async def test_death_of_a_child_is_seen_though_its_template_is_dead(heard: Heard) -> None:
    attempt = Running(heard.executor, tasks.ignore_sigterm)
    pid = await attempt.begun()
    os.kill(heard.template, signal.SIGKILL)
    await soon(lambda: not exists(heard.template), "the template is gone")
    os.kill(pid, signal.SIGKILL)
    outcome = await attempt.task
    assert isinstance(outcome, Failed)
    assert f"child process {pid} died with an exit code that is not known while running" in outcome.error


async def test_cancelled_child_is_ended_though_its_template_is_dead(heard: Heard) -> None:
    attempt = Running(heard.executor, tasks.with_subprocess, end="never")
    pid, grandchild = await attempt.begun()
    os.kill(heard.template, signal.SIGKILL)
    await attempt.cancel()
    await soon(lambda: not exists(pid) and not exists(grandchild), "both gone")


async def test_template_that_hangs_is_replaced_and_the_task_is_given_back() -> None:
    heard = Heard(process_max_tasks=1)
    await value(heard.executor, tasks.pid)
    template = heard.template
    os.kill(template, signal.SIGSTOP)
    heard.executor._config = heard.executor._config.with_changes(process_start_timeout_seconds=0.2)
    assert "ready" in await given_back(heard)
    await soon(lambda: not heard.executor._starting, "the start is given up")
    heard.executor._config = heard.executor._config.with_changes(process_start_timeout_seconds=60.0)
    assert await value(heard.executor, tasks.pid)
    assert heard.template != template
    await heard.executor.close()
    assert not exists(template)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "import threading\nthreading.Thread(target=threading.Event().wait, name='ticker', daemon=True).start()\n",
            "ticker",
        ),
        (
            "import ctypes\n"
            "c = ctypes.CDLL(None)\n"
            "c.pthread_create(ctypes.byref(ctypes.c_ulong()), None, c.pause, None)\n",
            "1 threads in native code",
        ),
    ],
    ids=["Python", "native"],
)
async def test_modules_that_start_threads_have_their_children_spawned_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    (tmp_path / "starts_a_thread.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    heard = Heard(("starts_a_thread",))
    attempts = [Running(heard.executor, tasks.wait_for_file, path=tmp_path / "go") for _ in range(2)]
    assert {parent(await attempt.begun()) for attempt in attempts} == {os.getpid()}
    (tmp_path / "go").touch()
    await asyncio.gather(*(attempt.task for attempt in attempts))
    [said] = heard.events
    assert isinstance(said, ChildrenSpawned)
    assert reason in said.reason
    await heard.executor.close()


async def test_system_without_pidfds_has_its_children_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    heard = Heard()
    assert parent(await value(heard.executor, tasks.pid)) == os.getpid()
    await heard.executor.close()
    assert heard.events == [ChildrenSpawned("this system has no pidfd_open")]


# ---- starts that fail


@pytest.mark.parametrize("start", ["template", "spawn"])
@pytest.mark.parametrize("python", ["/bin/false", "/no/such/python"])
async def test_task_is_given_back_when_no_child_can_be_started(
    start: str, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard(process_start=start)
    monkeypatch.setattr(sys, "executable", python)
    assert ("exit code 1" if python == "/bin/false" else "No such file") in await given_back(heard)
    monkeypatch.undo()
    assert await value(heard.executor, tasks.pid)
    await heard.executor.close()


async def test_kernel_that_refuses_to_fork_is_no_failure_of_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full_house.py").write_text(
        "import os, pathlib\n"
        "fork, full = os.fork, pathlib.Path(__file__).with_suffix('.full')\n"
        "def refuse():\n"
        "    if full.exists():\n"
        "        raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "    return fork()\n"
        "os.fork = refuse\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "full_house.full").touch()
    heard = Heard(("full_house",))
    assert "Resource temporarily unavailable" in await given_back(heard)
    template = heard.template
    (tmp_path / "full_house.full").unlink()
    assert await value(heard.executor, tasks.pid)
    assert heard.template == template, "it is asked again"
    await heard.executor.close()


async def test_pauses_between_failing_starts_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    heard = Heard()
    pauses = []

    def call_at_once(seconds: float, callback: Any, *arguments: Any) -> asyncio.TimerHandle:
        pauses.append(seconds)
        return call_later(0, callback, *arguments)

    loop = asyncio.get_running_loop()
    call_later = loop.call_later
    monkeypatch.setattr(loop, "call_later", call_at_once)
    for _ in range(9):
        assert "No such file" in await given_back(heard)
    monkeypatch.undo()
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]
    await heard.executor.close()


async def test_task_takes_a_neighbours_child_when_no_other_can_be_started(heard: Heard, tmp_path: Path) -> None:
    first = Running(heard.executor, tasks.wait_for_file, path=tmp_path / "go")
    pid = await first.begun()
    heard.executor._pause = asyncio.get_running_loop().call_later(600, lambda: None)  # as after a start that failed
    second = asyncio.create_task(value(heard.executor, tasks.pid))
    (tmp_path / "go").touch()
    assert await second == pid
    await first.task


async def test_child_that_cant_call_the_function_in_time_is_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hangs_on_import.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = children()
    heard = Heard(("hangs_on_import",), process_start_timeout_seconds=0.2)
    assert "ready" in await given_back(heard)
    await heard.executor.close()
    assert children() == before


def hear_nothing_until(happened: Callable[[], bool], then: Callable[[Child], None], patch: pytest.MonkeyPatch) -> None:
    """Once an order is sent, keep the loop from reading what the child says until this has happened."""
    send = Child._send

    def send_and_wait(self: Child, message: Message) -> None:
        send(self, message)
        if isinstance(message, RunAttempt):
            while not happened():
                time.sleep(0.01)
            then(self)

    patch.setattr(Child, "_send", send_and_wait)


@pytest.mark.parametrize("how", ["dies", "returns"])
async def test_function_called_at_the_end_of_its_time_to_start_counts_as_begun(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    await value(heard.executor, tasks.pid)
    heard.executor._config = heard.executor._config.with_changes(process_start_timeout_seconds=0.2)
    over = time.monotonic() + 0.5
    mark = tmp_path / "begun"
    hear_nothing_until(lambda: has_begun(mark, how) and time.monotonic() > over, lambda child: None, monkeypatch)
    ended = await run(heard.executor, tasks.begin, path=mark, how=how)
    if how == "returns":
        assert isinstance(ended, Done), ended
    else:
        assert isinstance(ended, Failed), ended
        assert ended.kind is FailureKind.CRASH
    await heard.executor.close()


@pytest.mark.parametrize(("how", "error"), [("goes on", "called the function too late"), ("dies", "SIGKILL")])
async def test_child_that_is_ended_when_it_has_just_called_the_function_has_begun(
    how: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    await value(heard.executor, tasks.pid)
    mark = tmp_path / "begun"
    hear_nothing_until(lambda: has_begun(mark, how), lambda child: child.end(), monkeypatch)
    ended = await run(heard.executor, tasks.begin, path=mark, how=how)
    assert isinstance(ended, Failed), ended
    assert error in ended.error
    assert ended.kind is FailureKind.CRASH
    await heard.executor.close()


def has_begun(mark: Path, how: str) -> bool:
    if not mark.exists() or not (pid := mark.read_text()):
        return False
    return how != "dies" or not runs(int(pid))


# ---- how many


async def test_no_more_children_start_at_a_time_than_there_are_processors(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_MOST_STARTING", 2)
    attempts = [Running(heard.executor, tasks.wait_for_file, path=tmp_path / "go") for _ in range(5)]
    await asyncio.sleep(0)
    await soon(lambda: heard.executor._starting, "the first ones start")
    assert len(heard.executor._starting) == 2
    assert len({await attempt.begun() for attempt in attempts}) == 5
    (tmp_path / "go").touch()
    await asyncio.gather(*(attempt.task for attempt in attempts))


async def test_one_task_starts_one_child(heard: Heard) -> None:
    await value(heard.executor, tasks.pid)
    assert len(heard.executor._children) == 1


@pytest.mark.parametrize("start", ["template", "spawn"])
async def test_cancelled_while_the_child_starts_leaves_nothing_behind(start: str) -> None:
    before = children()
    heard = Heard(process_start=start)
    attempt = Running(heard.executor, tasks.ignore_sigterm)
    await soon(lambda: children() > before, "started")
    await attempt.cancel()
    await heard.executor.close()
    assert children() == before


# ---- time


async def test_time_counts_from_when_the_function_is_called(heard: Heard) -> None:
    begun: list[str] = []
    outcome = await heard.executor.run(
        tasks.whoami, "{}", context("whoami"), timeout_seconds=60, begun=lambda: begun.append("begun")
    )
    assert isinstance(outcome, Done)
    assert begun == ["begun"]
    assert '"deadline":null' not in outcome.result


# ---- the streams


async def test_character_that_stdout_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    heard = Heard()
    await value(heard.executor, tasks.say, text="€")
    await heard.executor.close()
    assert capfd.readouterr().out == "\\u20ac"

"""Runs each path on a real PostgreSQL and counts what it enters.

The workers are idle when a path begins, and their own clocks stand still: heartbeats, polls, elections and sweeps are
hours apart. What else an idle process enters is left out, by its stack. Each path runs several times after a warm-up,
and only what every run enters counts, so a connection that is opened once drops out. What can't be kept apart: beside
the task the worker asks for the next one.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.walk.log import Entered, Log, Window

HOME = Path(__file__).resolve().parents[2]
RECORDER = Path(__file__).parent / "recorder"
LIMIT_SECONDS = 120.0
WARM_UP = 2
IDLE_SECONDS = 2.0

_HOURS = "36000"
_STILL = {
    "TASKLIB_HEARTBEAT_INTERVAL_SECONDS": "9000",
    "TASKLIB_HEARTBEAT_TIMEOUT_SECONDS": _HOURS,
    "TASKLIB_LOCK_TIMEOUT_SECONDS": _HOURS,
    "TASKLIB_LEADER_LEASE_SECONDS": _HOURS,
    "TASKLIB_SWEEP_INTERVAL_SECONDS": _HOURS,
    "TASKLIB_UPKEEP_INTERVAL_SECONDS": _HOURS,
    "TASKLIB_POLL_INTERVAL_SECONDS": _HOURS,
    "TASKLIB_MAX_PREFETCH": "0",
}
_RECOVERS_SOON = {
    "TASKLIB_SWEEP_INTERVAL_SECONDS": "0.3",
    "TASKLIB_HEARTBEAT_INTERVAL_SECONDS": "1",
    "TASKLIB_HEARTBEAT_TIMEOUT_SECONDS": "4",
}
"""For the leader and the worker that is lost."""


class WalkError(Exception):
    """A measured program didn't do what the path needs."""


class Program:
    """A measured process that says in JSON lines what happens."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def hear(self, what: str, id_: str | None = None) -> int:
        """Wait until the program says this; when it did."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line) if line.startswith("{") else {}
            if said.get("what") == what and (id_ is None or said["id"] == id_):
                return int(said["at"])
        raise WalkError(f"a measured program ended before it said {what!r}: {self._process.args!r}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Walk:
    """The paths, by name. Each gives what it entered by role."""

    def __init__(self, source: Path, url: str, directory: Path, rounds: int) -> None:
        self._source = source
        self._url = url
        self._directory = directory
        self._rounds = rounds
        self.paths: Mapping[str, Callable[[], Mapping[str, Entered]]] = {
            "submit": lambda: self._call("submit"),
            "get": lambda: self._call("get"),
            "wake-up to result": lambda: self._wake_up("add_async"),
            "wake-up to result, thread": lambda: self._wake_up("add_in_thread"),
            "wake-up to result, process": lambda: self._wake_up("add_in_process"),
            "crash to recovery": self._recovery,
            "HTTP worker": self._over_http,
        }
        self._command(sys.executable, "-m", "tasklib", "migrate")

    def _call(self, name: str) -> dict[str, Entered]:
        log = self._log(name)
        windows = []
        with self._running("client", str(WARM_UP + self._rounds), role="client", log=log) as client:
            for _ in range(WARM_UP + self._rounds):
                begin = client.hear(f"{name} begins")
                windows.append(Window(begin, client.hear(f"{name} ends")))
        return {"": log.entered(windows[WARM_UP:], ["client"])}

    def _wake_up(self, function: str) -> dict[str, Entered]:
        log = self._log(function)
        with self._running("worker", "10", role="worker", log=log) as worker:
            worker.hear("WorkerStarted")
            windows, idle = self._runs(worker, log, function)
        return {"": log.entered(windows, ["worker"], idle)}

    def _over_http(self) -> dict[str, Entered]:
        log = self._log("http")
        made = self._command(sys.executable, "-m", "tasklib", "token", "create", "walk", "--role", "worker", "--json")
        with self._serving(log) as address:
            server = {"WALK_SERVER": address, "TASKLIB_TOKEN": json.loads(made)["token"]}
            with self._running("worker", "10", role="worker", log=log, **server) as worker:
                worker.hear("WorkerStarted")
                windows, idle = self._runs(worker, log, "add_async")
        return {
            "": log.entered(windows, ["worker", "server"], idle),
            "worker's side": log.entered(windows, ["worker"], idle),
            "server's side": log.entered(windows, ["server"], idle),
        }

    def _recovery(self) -> dict[str, Entered]:
        log = self._log("recovery")
        with self._running("worker", "1", role="leader", log=log, **_RECOVERS_SOON) as leader:
            leader.hear("LeadershipTaken")
            self._lose_a_worker(leader, log, 0)
            idle = _idle(log)
            windows = [self._lose_a_worker(leader, log, number) for number in range(1, 1 + self._rounds)]
        return {"": log.entered(windows, ["leader"], idle, duties=True)}

    def _lose_a_worker(self, leader: Program, log: Log, number: int) -> Window:
        """Let another worker begin a task while the leader has no free slot, and kill that worker."""
        release = self._directory / f"release{number}"
        occupying = self._submit("occupy", release=str(release))
        leader.hear("TaskStarted", occupying)
        with self._running("worker", "1", role="lost", log=log, **_RECOVERS_SOON) as lost:
            task = self._submit("survive")
            lost.hear("TaskStarted", task)
            release.touch()
            leader.hear("TaskEnded", occupying)
            log.wait_until_quiet()
            killed_at = time.monotonic_ns()
            lost.kill()
        return Window(killed_at, leader.hear("TaskEnded", task))

    def _runs(self, worker: Program, log: Log, function: str) -> tuple[list[Window], Window]:
        """Submit one task after another to a worker that sleeps, each until the worker has stored its result."""
        windows, idle = [], Window(0, 0)
        for number in range(WARM_UP + self._rounds):
            if number == WARM_UP:
                idle = _idle(log)
            log.wait_until_quiet()
            begin = time.monotonic_ns()
            task = self._submit(function, number=number)
            windows.append(Window(begin, worker.hear("TaskEnded", task)))
        return windows[WARM_UP:], idle

    def _submit(self, function: str, **arguments: Any) -> str:
        """Submit from this process, which is not measured."""
        import tasklib
        from tools.walk import tasks

        async def submit() -> str:
            async with tasklib.AsyncClient(self._url) as client:
                return str(await client.submit_task(getattr(tasks, function), **arguments))

        return asyncio.run(submit())

    def _log(self, name: str) -> Log:
        return Log(self._directory / f"{name}.log")

    @contextmanager
    def _running(self, *arguments: str, role: str, log: Log, **variables: str) -> Iterator[Program]:
        command = [sys.executable, "-m", "tools.walk.programs", *arguments]
        with self._process(command, role, log, stdout=subprocess.PIPE, **variables) as process:
            yield Program(process)

    @contextmanager
    def _serving(self, log: Log) -> Iterator[str]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        command = [sys.executable, "-m", "tasklib", "server", "--port", port, "--quiet"]
        with self._process(command, "server", log, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if "Serving http" in line:
                    break
            else:
                raise WalkError("the server didn't start.")
            yield f"http://127.0.0.1:{port}"

    @contextmanager
    def _process(self, command: list[str], role: str, log: Log, **options: Any) -> Iterator[subprocess.Popen[str]]:
        variables = {name: options.pop(name) for name in list(options) if name.isupper()}
        recorded = {"WALK_LOG": str(log.path), "WALK_SOURCE": f"{self._source / 'tasklib'}/", "WALK_ROLE": role}
        environment = self._environment() | _STILL | recorded | variables
        process = subprocess.Popen(command, env=environment, cwd=HOME, text=True, **options)
        # A reader must not hang with a program that hangs.
        limit = threading.Timer(LIMIT_SECONDS, process.kill)
        limit.start()
        try:
            yield process
        finally:
            process.terminate()  # a worker resigns, so that the next one can lead
            process.wait()
            limit.cancel()

    def _command(self, *command: str) -> str:
        return subprocess.run(
            command, env=self._environment(), cwd=HOME, text=True, check=True, stdout=subprocess.PIPE
        ).stdout

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(map(str, (RECORDER, self._source, HOME)))
        return {**os.environ, "PYTHONPATH": path, "TASKLIB_DATABASE_URL": self._url}


def _idle(log: Log) -> Window:
    """A while in which nothing is to be done."""
    log.wait_until_quiet()
    begin = time.monotonic_ns()
    time.sleep(IDLE_SECONDS)
    return Window(begin, time.monotonic_ns())

"""A real worker over tasks submitted beforehand, with the stopwatch or without."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.profile.stages import Marks, Stages
from benchmarks.profile.stopwatch import Stopwatch
from benchmarks.schema import BenchSchema
from tasklib import Client, task
from tasklib.bench.cpu import seconds_of_trees
from tasklib.cli.running import run as run_as_the_command_does
from tasklib.tasks.function import TaskFunction
from tasklib.worker.worker import Worker

CONCURRENCY = 500
INSTRUMENTS = "these instruments"
Noop = TaskFunction[[int], Coroutine[Any, Any, int]]


def noop_task() -> Noop:
    """An argument that is checked, a result that is stored, and nothing between."""

    @task(name="profile.noop")
    async def noop(number: int) -> int:
        return number

    return noop


@dataclass(frozen=True)
class Moment:
    """Clocks in seconds, read together."""

    wall: float
    process: float
    thread: float
    backends: dict[str, float]
    """CPU time of the server's processes, where they can be seen."""
    stages: dict[str, float]


@dataclass
class Drain:
    """One run of a worker, from its first claim to the last result stored."""

    schema: BenchSchema
    tasks: int
    stages: Stages | None = None
    """Without, only the whole is known."""
    first: Moment | None = None
    last: Moment | None = None
    server: float | None = None
    """CPU seconds of the whole server; None where it can't be seen."""
    batches: int = 0
    marks: Marks = field(init=False)

    def __post_init__(self) -> None:
        self.marks = Marks(self._begun, self._stored)

    def run(self, function: Noop) -> Drain:
        """Submit, and work until nothing is left."""
        self._submit(function)
        worker = Worker(self.schema.config, concurrency=CONCURRENCY, burst=True, names=[function.name])
        with ExitStack() as stack:
            if self.stages is not None:
                stack.enter_context(self.stages.watched())
            stack.enter_context(self.marks.watched())
            run_as_the_command_does(worker)
        if self.server is not None:
            self.server = self._server_afterwards() - self.server
        done = self.schema.value("SELECT count(*) FROM tasks WHERE state = 'completed'")
        assert done == self.tasks, f"{done} of {self.tasks} tasks were completed"
        return self

    @property
    def wall(self) -> float:
        first, last = self._both
        return last.wall - first.wall

    @property
    def worker(self) -> float:
        """CPU seconds of the worker's process."""
        first, last = self._both
        return last.process - first.process

    @property
    def other_threads(self) -> float:
        first, last = self._both
        return self.worker - (last.thread - first.thread)

    @property
    def by_stage(self) -> dict[str, float]:
        return self._both[1].stages

    @property
    def backends(self) -> dict[str, float]:
        """CPU seconds of the server's processes for claims and settlements."""
        first, last = self._both
        return {stage: seconds - first.backends.get(stage, 0.0) for stage, seconds in last.backends.items()}

    @property
    def _both(self) -> tuple[Moment, Moment]:
        assert self.first is not None
        assert self.last is not None
        return self.first, self.last

    def _submit(self, function: Noop) -> None:
        self.schema.db.execute("TRUNCATE tasks")
        with Client(self.schema.config) as client:
            client.submit_many(function, ({"number": number} for number in range(self.tasks)))
        self.schema.calm()

    def _begun(self) -> None:
        if self.schema.postmaster is not None:
            self.server = self._server()
        if self.stages is not None:
            self.stages.watch.reset()
        self.first = self._moment()

    def _stored(self) -> None:
        watch = self.stages.watch if self.stages is not None else Stopwatch()
        with watch.stage(INSTRUMENTS):
            self.batches += 1
            self.last = self._moment()

    def _moment(self) -> Moment:
        visible = self.marks.backends if self.schema.postmaster is not None else {}
        backends = {stage: _processor_seconds(pid) for stage, pid in visible.items()}
        stages = self.stages.watch.read() if self.stages is not None else {}
        return Moment(time.perf_counter(), time.process_time(), time.thread_time(), backends, stages)

    def _server(self) -> float:
        assert self.schema.postmaster is not None
        return seconds_of_trees([self.schema.postmaster])

    def _server_afterwards(self) -> float:
        """A process that ends while we look is seen neither alive nor dead: the highest of some readings is right."""
        readings = []
        for _ in range(8):
            time.sleep(0.05)
            readings.append(self._server())
        return max(readings)


def _processor_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9

"""Timing a drain: from the first body's start to the moment when everything has run and is recorded as done."""

from __future__ import annotations

import mmap
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.peers.adapters.marks import COUNT
from benchmarks.peers.stage import History, MeasurementFailed, Stage
from tasklib.bench.draining import take_snapshot

LOOK_SECONDS = 0.005
NEW_COUNTERS_SECONDS = 0.05
PARTS = 10


class Counts:
    """What the bodies of all worker processes have counted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._maps: dict[str, mmap.mmap] = {}
        self._looked = 0.0

    def total(self) -> int:
        self._find_new()
        return sum(COUNT.unpack_from(found)[0] for found in self._maps.values())

    def first(self) -> float:
        """When the first body began."""
        return float(min(COUNT.unpack_from(found)[1] for found in self._maps.values()))

    def last(self) -> float:
        """When the last body began, so far."""
        return float(max(COUNT.unpack_from(found)[2] for found in self._maps.values()))

    def _find_new(self) -> None:
        # Looking for files takes longer than reading counts, and worker processes come seldom.
        if self._maps and time.monotonic() - self._looked < NEW_COUNTERS_SECONDS:
            return
        self._looked = time.monotonic()
        for path in self._directory.glob("count.*"):
            if path.name not in self._maps and path.stat().st_size >= COUNT.size:
                descriptor = os.open(path, os.O_RDONLY)
                self._maps[path.name] = mmap.mmap(descriptor, COUNT.size, prot=mmap.PROT_READ)
                os.close(descriptor)


class Watch:
    """Looks at a drain until it is over."""

    def __init__(self, stage: Stage, count: int, workers: list[subprocess.Popen[Any]], timeout: float) -> None:
        self.stage = stage
        self.count = count
        self.workers = workers
        self.deadline = time.monotonic() + timeout
        self.counts = Counts(stage.lab.run_dir)
        self.seen: list[tuple[int, float]] = []
        """How many had run at which moment, whenever there was something new to see."""

    def until_done(self, connection: psycopg.Connection[Any] | None) -> dict[str, Any]:
        while not (counted := self.counts.total()):
            self._check(0)
        cpu_before, counted_before = self.stage.processor_seconds(self.workers), counted
        ran, ended = self._last_look(connection)
        cpu_after = self.stage.processor_seconds(self.workers)
        began = self.counts.first()
        return {
            "n": self.count,
            "ran": ran,
            "seconds": ended - began,
            "body_seconds": self.counts.last() - began,
            "tasks_s": self.count / (ended - began),
            "tenths_tasks_s": rates_of_parts([(0, began), *self.seen], self.count),
            "cpu_server_10k": _per_10k(cpu_before[0], cpu_after[0], ran - counted_before),
            "cpu_worker_10k": _per_10k(cpu_before[1], cpu_after[1], ran - counted_before),
        }

    def _last_look(self, connection: psycopg.Connection[Any] | None) -> tuple[int, float]:
        """How many had run, and when, at the first look that found everything done."""
        while True:
            # What a query sees is from its beginning: how long it takes is not the system's time.
            ran, moment = self.counts.total(), time.monotonic()
            self._note(ran, moment)
            if ran >= self.count and self.stage.is_finished(connection):
                return ran, moment
            self._check(ran)

    def _check(self, ran: int) -> None:
        if time.monotonic() > self.deadline or all(worker.poll() is not None for worker in self.workers):
            raise MeasurementFailed(f"only {ran} of {self.count} ran: {self.stage.log('worker.log')}")
        time.sleep(LOOK_SECONDS)

    def _note(self, ran: int, moment: float) -> None:
        if not self.seen or ran > self.seen[-1][0]:
            self.seen.append((ran, moment))


def rates_of_parts(seen: Sequence[tuple[int, float]], count: int) -> list[float]:
    """Tasks per second in each tenth of a drain, from how many had run when: does it get slower as it goes on?"""
    reached = [_when(seen, count * part / PARTS) for part in range(PARTS + 1)]
    return [round(count / PARTS / (end - begin), 1) for begin, end in pairwise(reached) if end > begin]


def _when(seen: Sequence[tuple[int, float]], wanted: float) -> float:
    """The moment when so many had run, on the line between the two looks around it."""
    for (fewer, earlier), (more, later) in pairwise(seen):
        if more >= wanted:
            return earlier + (later - earlier) * (wanted - fewer) / (more - fewer)
    return seen[-1][1]


def drain(
    stage: Stage,
    count: int,
    *,
    kind: str = "noop",
    workers: int = 1,
    timeout: float,
    history: History | None = None,
    snapshot: bool = False,
) -> dict[str, Any]:
    """Submit, let it settle, start workers, and watch them drain the queue."""
    stage.make_fresh(history)
    finished_before = stage.count_finished() or 0
    submit_seconds = stage.submit(kind, count, many=True)
    stage.settle()
    with ExitStack() as stack:
        if snapshot:
            stack.enter_context(held_snapshot(stage))
        looking = None if stage.on_redis else stack.enter_context(connection_to_look(stage))
        started = stack.enter_context(stage.workers(workers))
        figures = Watch(stage, count, started, timeout).until_done(looking)
    finished = stage.count_finished()
    done = None if finished is None else finished - finished_before
    ok = figures["ran"] == count and done in (None, count)
    return {**figures, "done": done, "submit_many_tasks_s": count / submit_seconds, "ok": ok}


def connection_to_look(stage: Stage) -> psycopg.Connection[Any]:
    """Looks by index where there is one, whatever the statistics say in the middle of a drain."""
    return psycopg.connect(stage.database_url, autocommit=True, options="-c enable_seqscan=off")


@contextmanager
def held_snapshot(stage: Stage) -> Iterator[None]:
    """A transaction that keeps every row version alive, as a report or a backup does."""
    with psycopg.connect(stage.database_url) as connection:
        take_snapshot(connection)
        yield


def _per_10k(before: float | None, after: float | None, tasks: int) -> float | None:
    return None if before is None or after is None or tasks < 1 else (after - before) / tasks * 10_000

"""Threads: as many as needed, none idle in the way, nothing of one job seen by the next."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tasklib.executors.threads import ThreadExecutor

seen: contextvars.ContextVar[int] = contextvars.ContextVar("seen", default=0)


class Gathered:
    """What came back, and when all of it has."""

    def __init__(self, expected: int) -> None:
        self.values: list[Any] = []
        self._expected = expected
        self._all = asyncio.Event()

    def __call__(self, value: object) -> None:
        self.values.append(value)
        if len(self.values) == self._expected:
            self._all.set()

    async def all(self) -> list[Any]:
        async with asyncio.timeout(120):
            await self._all.wait()
        return self.values


@pytest.fixture
async def threads() -> AsyncIterator[ThreadExecutor]:
    executor = ThreadExecutor(40)
    yield executor
    executor.close()


async def test_jobs_that_wait_for_each_other_all_get_a_thread(threads: ThreadExecutor) -> None:
    barrier = threading.Barrier(40)
    gathered = Gathered(40)
    for _ in range(40):
        threads.submit(lambda: barrier.wait(timeout=120), gathered)
    assert sorted(await gathered.all()) == list(range(40))


async def test_never_more_threads_than_allowed() -> None:
    executor, gathered, running, most = ThreadExecutor(3), Gathered(30), 0, 0
    lock, together = threading.Lock(), threading.Barrier(3)

    def job() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(120)
        with lock:
            running -= 1

    for _ in range(30):
        executor.submit(job, gathered)
    await gathered.all()
    executor.close()
    assert most == 3


async def test_short_jobs_share_few_threads(threads: ThreadExecutor) -> None:
    gathered = Gathered(2_000)
    for _ in range(2_000):
        threads.submit(threading.get_ident, gathered)
    assert len(set(await gathered.all())) < 20


async def test_results_arrive_on_the_loop(threads: ThreadExecutor) -> None:
    here, gathered = threading.get_ident(), Gathered(1)
    threads.submit(threading.get_ident, lambda there: gathered((there, threading.get_ident())))
    [(there, arrived)] = await gathered.all()
    assert there != here
    assert arrived == here


async def test_what_a_job_sets_in_its_context_ends_with_it() -> None:
    seen.set(1)
    executor, gathered = ThreadExecutor(1), Gathered(2)

    def job() -> int:
        before = seen.get()
        seen.set(before + 1)
        return before

    executor.submit(job, gathered)
    executor.submit(job, gathered)
    assert await gathered.all() == [1, 1]
    executor.close()


async def test_job_waits_until_the_system_gives_a_thread(
    threads: ThreadExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refusals = threading.Thread.start, iter(range(3))

    def start_later(thread: threading.Thread) -> None:
        if next(refusals, None) is not None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_later)
    gathered = Gathered(1)
    threads.submit(lambda: "ran", gathered)
    assert await gathered.all() == ["ran"]

"""One timer for many deadlines, and tasks that start at once."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from tasklib.executors.functions import eager_task
from tasklib.executors.timing import RepeatedLook


class Looks:
    """A look that says when it was called, and wants the next one after `again`."""

    def __init__(self, again: list[float]) -> None:
        self._again = again
        self.at: list[float] = []
        self.done = asyncio.Event()

    def __call__(self) -> float | None:
        self.at.append(time.monotonic())
        if not self._again:
            self.done.set()
            return None
        return time.monotonic() + self._again.pop(0)


async def test_looks_at_the_earliest_time_and_then_when_it_was_told() -> None:
    looks = Looks([0.01])
    repeated = RepeatedLook(looks)
    now = time.monotonic()
    repeated.at(now + 500)
    repeated.at(now + 0.02)
    repeated.at(now + 400)
    async with asyncio.timeout(120):
        await looks.done.wait()
    assert len(looks.at) == 2
    assert looks.at[0] >= now + 0.019


async def test_stopped_it_looks_no_more() -> None:
    looks = Looks([])
    repeated = RepeatedLook(looks)
    repeated.at(time.monotonic())
    repeated.stop()
    repeated.at(time.monotonic() + 500)
    later = asyncio.Event()  # timers go off in their order: by then the first would have
    asyncio.get_running_loop().call_later(0.001, later.set)
    await later.wait()
    assert looks.at == []
    repeated.stop()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio starts no task at once before Python 3.12")
async def test_task_that_never_waits_is_over_at_once() -> None:
    steps: list[str] = []

    async def quick() -> None:
        assert asyncio.current_task() is not me
        steps.append("ran")

    me = asyncio.current_task()
    task = eager_task(quick(), asyncio.get_running_loop())
    assert task.done()
    assert steps == ["ran"]


async def test_task_that_waits_goes_on_later() -> None:
    event = asyncio.Event()
    task = eager_task(_waited(event), asyncio.get_running_loop())
    assert not task.done()
    event.set()
    await task


async def _waited(event: asyncio.Event) -> None:
    await event.wait()

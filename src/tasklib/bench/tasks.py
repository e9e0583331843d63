"""The task functions that are measured: they do next to nothing, so that TaskLib's own cost remains.

Each takes an argument that is checked, and returns a result that is stored.
"""

from __future__ import annotations

import asyncio
import time

from tasklib.tasks.function import task

NAP_SECONDS = 0.1


@task(name="bench.noop")
async def noop(number: int) -> int:
    return number


@task(name="bench.noop_in_thread")
def noop_in_thread(number: int) -> int:
    return number


@task(name="bench.ping")
async def ping(number: int) -> float:
    """When it began, by a clock that all processes of a machine share."""
    return time.monotonic()


@task(name="bench.nap")
async def nap(number: int) -> int:
    """Keeps a slot busy, but not the processor."""
    await asyncio.sleep(NAP_SECONDS)
    return number

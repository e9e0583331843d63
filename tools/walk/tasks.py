"""The task functions that the measured workers run."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from tasklib import task


@task
async def add_async(number: int) -> int:
    return number + 1


@task
def add_in_thread(number: int) -> int:
    return number + 1


@task(executor="process")
def add_in_process(number: int) -> int:
    return number + 1


@task
def occupy(release: str) -> None:
    """Keep a slot until a file appears."""
    while not Path(release).exists():
        time.sleep(0.02)


@task
async def survive() -> None:
    """Never end in the worker that is going to be killed; end at once in another."""
    if os.environ.get("WALK_ROLE") == "lost":
        await asyncio.Event().wait()

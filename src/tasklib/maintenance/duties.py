"""A duty is a function and an interval; this loop calls it. It exists once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tasklib.errors import DatabaseUnavailable


@dataclass(frozen=True, slots=True)
class Duty:
    """Something to do again and again. It must be safe to repeat, and to be done by two workers at once."""

    name: str
    interval_seconds: float
    perform: Callable[[], Awaitable[None]]


async def perform(duties: Sequence[Duty]) -> None:
    """Perform each duty at its interval, for ever."""
    async with asyncio.TaskGroup() as group:
        for duty in duties:
            group.create_task(_repeat(duty))


async def _repeat(duty: Duty) -> None:
    while True:
        # Spread out, so that a fleet started together doesn't sweep together.
        await asyncio.sleep(duty.interval_seconds * random.uniform(0.8, 1.2))
        try:
            await duty.perform()
        except DatabaseUnavailable:
            continue  # the next round will find what this one could not

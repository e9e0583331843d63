"""Work that a duty does in batches, until one is not full."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
FIRST, MOST = 500, 8_000


async def in_batches(work: Callable[[int], Awaitable[list[T]]]) -> list[T]:
    """Work through all there is; the function gets how many at most.

    A full batch is followed by one of twice the size: each statement looks at all that is left, so batches of one size
    would take time by the square of their number. The first are small, as most of the time there is little to do.
    """
    done: list[T] = []
    limit = FIRST
    while True:
        batch = await work(limit)
        done += batch
        if len(batch) < limit:
            return done
        limit = min(2 * limit, MOST)

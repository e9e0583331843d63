"""How many tasks a worker may hold, and when it is worth asking for more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tasklib.worker.prefetch import Prefetch

BATCH = 500
"""The most tasks in one claim. Larger ones gain nothing, and keep the settling of what they bring waiting."""


class Slots:
    """A slot is taken from the claim until the result is durable. Short tasks may wait here for theirs (`prefetch`)."""

    def __init__(self, size: int, most_prefetched: int = 0) -> None:
        self.size = size
        self.taken = 0
        self.running = 0
        """Functions that run now; never more than `size`."""
        self.waiting = 0
        """Tasks that were claimed and have not been begun, nor given back."""
        self.flushing = False
        """Results are being stored: slots are about to become free."""
        self.prefetch = Prefetch(most_prefetched)
        self.ahead = 0
        """How many tasks may be held beyond the slots, just now."""
        self.on_given_back: Callable[[], None] = lambda: None
        self._changed = asyncio.Event()

    @property
    def room(self) -> int:
        """How many more tasks to ask for."""
        return max(0, self.size + self.ahead - self.taken)

    @property
    def open(self) -> int:
        """Tasks that were begun, or are given back, and whose results are not durable yet."""
        return self.taken - self.waiting

    def take(self, count: int) -> None:
        self.taken += count
        self.waiting += count

    def keep(self) -> None:
        """Take one more: an attempt is settled while its function goes on, and gives this one back when it ends."""
        self.taken += 1

    def give_back(self, count: int = 1) -> None:
        self.taken -= count
        self._changed.set()
        if self.waiting:
            self.on_given_back()

    def nudge(self) -> None:
        """Make waiters look again."""
        self._changed.set()

    @property
    def worth_claiming(self) -> bool:
        """There is room for a whole batch, or for half of all there can be; or for some, and no flush will free more.

        Waiting for the flush turns many small claims into one; it never leaves a slot idle for longer than that.
        """
        room = self.room
        return room > 0 and (not self.flushing or room >= min(BATCH, (self.size + self.ahead + 1) // 2))

    async def changed(self) -> None:
        """Wait until something about the slots has changed."""
        self._changed.clear()
        await self._changed.wait()

"""How many tasks a worker may hold, and when it is worth asking for more."""

from __future__ import annotations

import asyncio


class Slots:
    """A slot is taken from the claim until the result is durable."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0
        self.flushing = False
        """Results are being stored: slots are about to become free."""
        self._changed = asyncio.Event()

    @property
    def free(self) -> int:
        return max(0, self.size - self.taken)

    def take(self, count: int) -> None:
        self.taken += count

    def keep(self) -> None:
        """Take one more: an attempt is settled while its function goes on, and gives this one back when it ends."""
        self.taken += 1

    def give_back(self, count: int = 1) -> None:
        self.taken -= count
        self._changed.set()

    def nudge(self) -> None:
        """Make waiters look again."""
        self._changed.set()

    @property
    def worth_claiming(self) -> bool:
        """Half the slots are free, or some are and no flush is about to free more.

        Waiting for the flush turns many small claims into one; it never leaves a slot idle for longer than that.
        """
        return self.free * 2 >= self.size or (self.free > 0 and not self.flushing)

    async def changed(self) -> None:
        """Wait until something about the slots has changed."""
        self._changed.clear()
        await self._changed.wait()

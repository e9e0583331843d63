"""How many tasks a worker may hold, and when it is worth asking for more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

BATCH = 500
"""The most tasks in one claim. Larger ones gain nothing, and delay the settling of their tasks."""
_MOMENT_SECONDS = 0.05
PATIENCE_SECONDS = 0.25
"""How long a task claimed ahead waits before it is asked whether its turn is in sight."""
_SHORT_SECONDS = 0.005
_MEMORY = 16
"""How long a function takes is an average over about this many tasks."""
_WINDOW_SECONDS = 0.02
_LATELY_SECONDS = 1.0


class Slots:
    """A slot is taken from the claim until the result is durable. Short tasks may wait here for theirs (`prefetch`)."""

    def __init__(self, size: int, most_prefetched: int = 0) -> None:
        self.size = size
        self.taken = 0
        self.running = 0
        """Functions that run now; never more than `size`."""
        self.asked = 0
        """How many tasks the claim that is under way asks for."""
        self.resting = False
        """The last claim has brought nothing, or failed, and the next one is not due yet."""
        self.waiting = 0
        """Tasks that were claimed and neither begun nor released."""
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
    def free(self) -> int:
        """How many tasks could begin at once."""
        return max(0, self.size - self.taken)

    @property
    def most_running(self) -> int:
        """How many functions may run now."""
        return self.size

    @property
    def open(self) -> int:
        """Tasks that were begun or are being released, and whose outcomes are not committed yet."""
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
        """Make waiting coroutines check again."""
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


class Prefetch:
    """How many tasks a worker may claim ahead of its free slots: it remembers how long functions take.

    Short tasks are over before the next claim could bring more, so a worker claims some ahead: only of functions that
    were short lately, and only as many as it gets through in a moment. What was claimed ahead and has no slot in sight
    after much longer than that is given back, and nothing more is claimed ahead until there is new evidence.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._average: dict[str, float] = {}
        self._per_second = 0.0
        self._ended = 0
        self._since = time.monotonic()

    def ended(self, name: str, seconds: float) -> None:
        """A task of this name took so long."""
        self._ended += 1
        average = self._average.get(name, 2 * _SHORT_SECONDS)
        self._average[name] = average + (seconds - average) / _MEMORY

    def are_short(self, names: Iterable[str]) -> bool:
        return all(self._average.get(name, _SHORT_SECONDS) < _SHORT_SECONDS for name in names)

    @property
    def count(self) -> int:
        """How many tasks of short functions to hold beyond the slots."""
        elapsed = (now := time.monotonic()) - self._since
        if elapsed >= _WINDOW_SECONDS:
            per_second = self._ended / elapsed
            # After a pause, what was before it is no evidence.
            self._per_second = per_second if elapsed > _LATELY_SECONDS else (self._per_second + per_second) / 2
            self._ended, self._since = 0, now
        return min(self._most, int(self._per_second * _MOMENT_SECONDS))

    def was_too_much(self) -> None:
        """Some prefetched tasks had to be released."""
        self._per_second = 0.0
        self._average.clear()

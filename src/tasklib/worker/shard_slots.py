"""The slots of a worker over several shards: each shard has its own count, and all draw on one number of slots.

A shard *wants* slots unless its claimer rests (its last claim brought nothing) or it is silent. While several want
some, each has an equal share, and of two that are below theirs the one whose last claim is longer ago comes first:
one slot goes round. While only one wants some, it has all that are free.

A shard is *silent* when its database has owed an answer to a claim or a flush for a second. What it holds without
running it, which are slots asked for and results that wait for its database, does not count then, so that the other
shards go on with all slots but those whose functions run.
"""

from __future__ import annotations

import asyncio
import time
from itertools import count

from tasklib.worker.slots import BATCH, Slots

SILENT_SECONDS = 1.0


class SlotPool:
    """The slots of a worker, for all its shards."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.shards: list[ShardSlots] = []
        self.turns = count(1)
        self._look: asyncio.TimerHandle | None = None
        self._starting = False

    def changed(self) -> None:
        """There may be room for a claimer that waits."""
        for slots in self.shards:
            slots.nudge()

    def freed(self) -> None:
        """A function has ended: a claimed task of another shard may begin, once the shard's own has had its chance."""
        if not self._starting and any(slots.waiting for slots in self.shards):
            self._starting = True
            asyncio.get_running_loop().call_soon(self._start_waiting)

    def watch(self) -> None:
        """A database was asked: look again when that has taken so long that its shard counts as silent."""
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(SILENT_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._look = None
        if any(slots.owed_since is not None for slots in self.shards):
            self.watch()
            self.changed()

    def _start_waiting(self) -> None:
        self._starting = False
        for slots in sorted(self.shards, key=lambda slots: slots.running):
            if slots.waiting:
                slots.on_given_back()


class ShardSlots(Slots):
    """The slots as the claimer, the runner and the settler of one shard see them."""

    def __init__(self, pool: SlotPool, most_prefetched: int = 0) -> None:
        self._pool = pool
        self._running = self._asked = 0
        self._resting, self._flushing = True, False
        self._asked_at = self._flushing_at = 0.0
        self._turn = next(pool.turns)
        """When it last claimed, among the turns of all shards."""
        super().__init__(pool.size, most_prefetched)
        pool.shards.append(self)

    def leave(self) -> None:
        """The shard is not served any more."""
        self._pool.shards.remove(self)
        self._pool.changed()

    @property
    def room(self) -> int:
        return max(0, self._fair + self.ahead - self.taken)

    @property
    def free(self) -> int:
        return max(0, self._fair - self.taken)

    @property
    def worth_claiming(self) -> bool:
        room = self.room
        return room > 0 and (not self.flushing or room >= min(BATCH, (self._fair + self.ahead + 1) // 2))

    @property
    def most_running(self) -> int:
        """How many of its functions may run now: claimed tasks of shards below their share come first."""
        others = [slots for slots in self._pool.shards if slots is not self]
        free, share = self.size - sum(slots.running for slots in others), self._share(others)
        claimed = sum(min(slots.waiting, max(0, share - slots.running)) for slots in others if not slots.is_silent)
        return max(min(free, share), free - claimed)

    @property
    def owed_since(self) -> float | None:
        """Since when the database owes an answer to a claim or a flush."""
        owed = [at for at, going_on in ((self._asked_at, self._asked), (self._flushing_at, self._flushing)) if going_on]
        return min(owed, default=None)

    @property
    def is_silent(self) -> bool:
        return (since := self.owed_since) is not None and time.monotonic() - since > SILENT_SECONDS

    @property
    def wants(self) -> bool:
        return not self._resting and not self.is_silent

    def give_back(self, count: int = 1) -> None:
        super().give_back(count)
        self._pool.changed()

    # What the claimer, the runner and the settler set.

    @property
    def running(self) -> int:
        return self._running

    @running.setter
    def running(self, value: int) -> None:
        is_less, self._running = value < self._running, value
        if is_less:
            self._pool.freed()

    @property
    def asked(self) -> int:
        return self._asked

    @asked.setter
    def asked(self, value: int) -> None:
        self._asked = value
        if value:
            self._asked_at, self._turn = time.monotonic(), next(self._pool.turns)
            self._pool.watch()
        else:
            self._pool.changed()

    @property
    def flushing(self) -> bool:
        return self._flushing

    @flushing.setter
    def flushing(self, value: bool) -> None:
        self._flushing, self._flushing_at = value, time.monotonic()
        if value:
            self._pool.watch()

    @property
    def resting(self) -> bool:
        return self._resting

    @resting.setter
    def resting(self, value: bool) -> None:
        has_changed, self._resting = value is not self._resting, value
        if has_changed and value:
            self._pool.changed()

    # How many slots it may hold.

    @property
    def _fair(self) -> int:
        others = [slots for slots in self._pool.shards if slots is not self]
        share = self._share(others)
        free = self.size - sum(slots._held(share, before=self._turn) for slots in others)
        return min(free, share)

    def _share(self, others: list[ShardSlots]) -> int:
        return -(-self.size // (1 + sum(slots.wants for slots in others)))

    def _held(self, share: int, before: int) -> int:
        """How many slots it keeps from another shard, whose last claim was at `before`."""
        if self.is_silent:
            return self._running
        if self.wants and self._turn < before:
            return max(self._running, share)
        return max(self._running, min(self.taken + self._asked, share))

"""How many tasks a worker may begin before the results of the earlier ones are stored.

A worker begins its tasks in the order of its claims, which is the order of (started_at, due, id) in the table. Of those
that it has begun, never more than `may_begin` (its row in `workers`) are without a stored result. So when it is lost,
what stands further behind in that order can't have begun, and goes back as it was (sql/maintenance/fragments/held.sql).

    raised      on record first, then here          lowered     here first, then on record

As many as it has slots are always enough, but for functions so short that storing results takes longer than running
them: then the limit is raised while they last. After a claim whose answer was lost, tasks may be leased to this worker
that it doesn't know of, and stand before its others: then there is no limit until they can't turn up any more.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from tasklib.errors import DatabaseUnavailable
from tasklib.worker.slots import Slots

_MOST = 1000
_LOWER_EVERY_SECONDS = 5.0
_DOUBT_SECONDS = 60.0


class _LimitRecord(Protocol):
    @property
    def knows_order(self) -> bool: ...
    async def may_begin(self, worker_id: str, count: int | None) -> None: ...


class BeginLimit:
    """The limit, as it is on record."""

    def __init__(self, slots: Slots, record: _LimitRecord, worker_id: Callable[[], str]) -> None:
        self._slots = slots
        self._record = record
        self._worker_id = worker_id
        self._raised = max(2 * slots.size, _MOST)
        self._raising: asyncio.Task[None] | None = None
        self._doubt_until = 0.0
        self.most: float = slots.size
        self.on_raised: Callable[[], None] = lambda: None
        self.reset()

    def reset(self) -> None:
        """The worker registers, under a new id: that sets the record to its slots."""
        self.most = self._slots.size if self._record.knows_order else math.inf

    def ask_for_more(self) -> None:
        """More tasks could begin now, but for the limit."""
        if self.most < self._raised and self._raising is None:
            self._raising = asyncio.create_task(self._raise())

    async def lift(self) -> None:
        """Until further notice, the worker may have begun all it holds: an answer to a claim was lost."""
        self._doubt_until = time.monotonic() + _DOUBT_SECONDS
        if self.most < math.inf:
            await self._put_on_record(None)

    async def run(self) -> None:
        """Lower the limit again when the slots are enough, for ever."""
        while True:
            await asyncio.sleep(_LOWER_EVERY_SECONDS)
            with suppress(DatabaseUnavailable):  # then the record says more than need be
                await self.lower()

    async def lower(self) -> None:
        slots = self._slots
        raised = self._record.knows_order and self.most > slots.size
        # Nothing waits and no more is held than there are slots: so no more has begun than the record will say.
        if raised and not slots.waiting and slots.taken <= slots.size and time.monotonic() > self._doubt_until:
            self.most = slots.size
            await self._record.may_begin(self._worker_id(), slots.size)

    async def _raise(self) -> None:
        try:
            with suppress(DatabaseUnavailable):  # the next one that has to wait asks again
                await self._put_on_record(self._raised)
        finally:
            self._raising = None
        self.on_raised()

    async def _put_on_record(self, count: int | None) -> None:
        worker_id = self._worker_id()
        await self._record.may_begin(worker_id, count)
        if worker_id == self._worker_id():
            self.most = max(self.most, math.inf if count is None else count)

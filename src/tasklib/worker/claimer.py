"""Claiming: as many tasks as there are free slots, as soon as there are some."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tasklib.config import Config
from tasklib.db.link import Link, backoff
from tasklib.errors import DatabaseUnavailable
from tasklib.events import Events, TasksClaimed
from tasklib.store import claim
from tasklib.store.claim import Claimed, Served
from tasklib.worker.slots import Slots
from tasklib.worker.wakeup import Wakeup


class Claimer:
    """Asks for tasks until told to stop; `burst` stops by itself when nothing is due and nothing runs."""

    def __init__(
        self,
        config: Config,
        link: Link,
        slots: Slots,
        wakeup: Wakeup,
        events: Events,
        *,
        served: Callable[[], Served],
        worker_id: Callable[[], str],
        start: Callable[[list[Claimed], float], None],
        burst: bool = False,
    ) -> None:
        self._config = config
        self._link = link
        self._slots = slots
        self._wakeup = wakeup
        self._events = events
        self._served = served
        self._worker_id = worker_id
        self._start = start
        self._burst = burst
        self._stopped = False

    def stop(self) -> None:
        """No further claims. One that is under way ends, and what it brings is handed on."""
        self._stopped = True
        self._wakeup.ring()
        self._slots.nudge()

    async def run(self) -> None:
        failures = 0
        while not self._stopped:
            if not self._slots.worth_claiming:
                await self._slots.changed()
                continue
            try:
                found = await self._claim()
                if not found and not self._stopped:
                    await self._rest()
                failures = 0
            except DatabaseUnavailable:
                await asyncio.sleep(backoff(failures))
                failures += 1

    async def _claim(self) -> bool:
        self._wakeup.arm()
        asked = self._slots.free
        query = claim.claim(
            self._served(),
            asked,
            self._worker_id(),
            lease_seconds=self._config.lock_timeout_seconds,
            medium_after=self._config.promote_to_medium_after_seconds,
            high_after=self._config.promote_to_high_after_seconds,
        )
        # Counted from before the statement was sent, so that our idea of the lease ends before the database's.
        lease_deadline = time.monotonic() + self._config.lock_timeout_seconds
        claimed = await self._link.run(query)
        if not claimed:
            return False
        self._wakeup.busy()
        self._slots.take(len(claimed))
        if self._events:
            self._events.emit(TasksClaimed(asked, len(claimed)))
        self._start(claimed, lease_deadline)
        return True

    async def _rest(self) -> None:
        if self._burst:
            if self._slots.taken == 0:
                self._stopped = True
            else:
                await self._slots.changed()
            return
        await self._wakeup.sleep(await self._link.run(claim.next_due(self._served())))

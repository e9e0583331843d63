"""Falling asleep so that no task is missed, though producers notify only while somebody sleeps.

A worker that has nothing to do tells producers (`workers.asleep`) and then looks once more. A producer whose
transaction had begun to write by then may not have seen it: so the worker looks again until those that were under way
are over, and only then relies on being notified. A producer looks after it has begun to write, so there is no third
case. The announcement stays while the worker has little to do; it is withdrawn when it has been awake for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.store import claim, fleet
from tasklib.store.claim import Outlook, Served
from tasklib.worker.wakeup import Wakeup

LONG_AWAKE_SECONDS = 0.1
_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.002, 0.1


class Sleep:
    """What one worker has told producers, and whether they all know by now."""

    def __init__(
        self, db: ReconnectingConnection, wakeup: Wakeup, *, served: Callable[[], Served], worker_id: Callable[[], str]
    ) -> None:
        self._db = db
        self._wakeup = wakeup
        self._served = served
        self._worker_id = worker_id
        self._announced_as: str | None = None
        self._unaware_before: int | None = None
        """Writers before this one may not know; None once they are over."""
        self._pause = _FIRST_LOOK_SECONDS
        self._awake_since = time.monotonic()

    @property
    def is_announced(self) -> bool:
        # Declared dead meanwhile, a worker goes on under another id, of which nobody was told anything.
        return self._announced_as is not None and self._announced_as == self._worker_id()

    @property
    def relies_on_notification(self) -> bool:
        return self.is_announced and self._unaware_before is None

    async def rest(self) -> None:
        """Nothing was found: sleep, or return at once if it is worth another look."""
        if self._wakeup.is_rung:
            return  # while it looked
        if self._wakeup.listening.is_set() and not self.is_announced:
            await self._announce()
            return
        outlook = await self._db.run(claim.outlook(self._served()))
        if self.is_announced and not self.relies_on_notification:
            await self._look_again(outlook)
        else:
            await self._wakeup.sleep(outlook.next_due_seconds)
            self._awake_since = time.monotonic()

    async def stay_awake(self) -> None:
        """There is work: once it has gone on for a while, producers need not notify."""
        if self._announced_as is not None and time.monotonic() - self._awake_since > LONG_AWAKE_SECONDS:
            name, self._announced_as = self._announced_as, None
            await self._db.run(fleet.sleeps(name, False))

    async def _announce(self) -> None:
        name = self._worker_id()
        if not await self._db.run(fleet.sleeps(name, True)):
            await self._wakeup.sleep(None)  # not one of the fleet just now; the poll will do
            return
        # Asked for once the announcement is committed: a producer that begins to write from now on sees it.
        self._unaware_before = await self._db.run(claim.next_writer())
        self._announced_as, self._awake_since, self._pause = name, time.monotonic(), _FIRST_LOOK_SECONDS
        await self._look_again(await self._db.run(claim.outlook(self._served())))

    async def _look_again(self, outlook: Outlook) -> None:
        assert self._unaware_before is not None
        if outlook.oldest_writer >= self._unaware_before:
            self._unaware_before = None  # the next look is the last that is needed
        else:
            await self._wakeup.nap(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_LOOK_SECONDS)

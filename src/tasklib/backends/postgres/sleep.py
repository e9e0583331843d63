"""An idle worker: when it looks for tasks again, and how it falls asleep so that no task is missed.

It looks again after a notification, when the next task is due, and every poll interval. Producers notify only while
some worker sleeps. So a worker that has nothing to do tells producers (`workers.asleep`) and then looks once more. A
producer whose transaction had begun to write by then may not have seen it: so the worker looks again until those that
were under way are over, and only then relies on being notified. A producer looks after it has begun to write, so there
is no third case. The announcement stays while the worker has little to do; it is withdrawn when it has been awake for a
while.

Producers wake as many sleepers as they have work for, and rely on those: a worker that was woken owes them a look. If
it has no room for all that may be due, or leaves, it wakes others in its stead (`pass_on.sql`). If it is gone, the
others find the task by their polls.

A worker with a database sleeps this way, and so does a server for each worker that polls it.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable

from tasklib.backends.postgres.lanes import Lanes
from tasklib.backends.postgres.notifier import Notifier
from tasklib.db.query import Runs
from tasklib.errors import DatabaseUnavailable, WorkerNotFound
from tasklib.events import Events, Woken
from tasklib.store import claim, control, fleet
from tasklib.store.claim import Outlook, Served

LONG_AWAKE_SECONDS = 0.1
_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.002, 0.1
_SHORTEST_POLL_FRACTION = 1 / 16
_LISTENING_POLL_FACTOR = 4.0
"""While notifications arrive, the poll only finds what a worker that is gone was woken for."""


class Wakeup:
    """`arm()` before looking for tasks, `sleep()` if there were none: what is announced in between is not missed."""

    def __init__(self, notifier: Notifier, poll_interval_seconds: float, events: Events) -> None:
        self._notifier = notifier
        self._longest = poll_interval_seconds
        self._events = events
        self.is_rung = False
        """Something was announced since `arm()`."""
        self._summoned = self._answering = False
        self._sleeper: asyncio.Future[bool] | None = None
        self._idle_rounds = 0
        self.cancel_requested = asyncio.Event()
        """A running task was cancelled, perhaps one of ours."""
        self.on_waking: Callable[[], None] = self.wake
        """What a ring does to a sleeper: it may do something first, and then has to `wake()` it."""
        self.on_summon: Callable[[], None] = lambda: None
        self.on_fleet_change: Callable[[], None] = lambda: None
        """A worker was asked to drain, perhaps this one."""

    @property
    def is_listening(self) -> bool:
        return self._notifier.is_listening

    @property
    def channel(self) -> str:
        """On which this worker is woken."""
        return self._notifier.channel

    @property
    def owes(self) -> bool:
        """Whether it was woken for tasks that no look has shown to be gone."""
        return self._summoned or self._answering

    def arm(self) -> None:
        self.is_rung = False
        self._answering, self._summoned = self.owes, False

    def owe(self) -> None:
        """As if it had been woken: others may have passed over a task on its account."""
        self._answering = True

    def answered(self) -> None:
        """The look since `arm()` has found all there was, or other workers were woken for it."""
        self._answering = False

    def summon(self, worker_id: str = "") -> None:
        """A producer relies on this worker, whatever id it called it by."""
        self._summoned = True
        self.ring()
        self.on_summon()

    def ring(self) -> None:
        """There may be something to do."""
        self.is_rung = True
        if self._sleeper is not None and not self._sleeper.done():
            self.on_waking()

    def wake(self) -> None:
        """Let the sleeper go on, if there is one."""
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(True)

    def hear(self, message: str | None) -> None:
        """A notification has come, or (None) some may have been missed."""
        match message:
            case control.CANCEL:
                self.cancel_requested.set()
            case fleet.DRAIN:
                self.on_fleet_change()
            case None:
                self.cancel_requested.set()
                self.ring()
            case _:
                self.ring()

    def busy(self) -> None:
        """Tasks were found: the next idle spell begins with a short poll again."""
        self._idle_rounds = 0

    async def sleep(self, next_due_seconds: float | None, within: float = math.inf) -> bool:
        """Wait for a ring, the next due task, the poll or the end of this time; whether there is something to claim."""
        poll = min(self._poll_seconds(), within)
        due_first = next_due_seconds is not None and next_due_seconds < poll
        pause = max(0.0, next_due_seconds) if next_due_seconds is not None and due_first else poll
        rung = await self._ring_within(pause)
        if self._events.routine:
            self._events.emit_routine(Woken("notify" if rung else "due" if due_first else "poll"))
        return rung or due_first

    async def nap(self, seconds: float) -> None:
        """Wait for a ring, but not for long."""
        if await self._ring_within(seconds) and self._events.routine:
            self._events.emit_routine(Woken("notify"))

    async def _ring_within(self, seconds: float) -> bool:
        """Whether there was a ring; by a bare future, which wakes a little sooner than an event and a timeout."""
        if self.is_rung:
            return True
        loop = asyncio.get_running_loop()
        self._sleeper = loop.create_future()
        timer = loop.call_later(seconds, _let_sleep, self._sleeper)
        try:
            return await self._sleeper
        finally:
            timer.cancel()
            self._sleeper = None

    def _poll_seconds(self) -> float:
        """Never in step with other workers. Without notifications soon after work, then slower and slower."""
        interval = self._longest
        if self.is_listening:
            interval *= _LISTENING_POLL_FACTOR
        else:
            interval *= min(1.0, _SHORTEST_POLL_FRACTION * 2.0**self._idle_rounds)
            self._idle_rounds = min(self._idle_rounds + 1, 8)
        return interval * random.uniform(0.75, 1.0)


def _let_sleep(sleeper: asyncio.Future[bool]) -> None:
    if not sleeper.done():
        sleeper.set_result(False)


def not_registered(worker_id: str) -> WorkerNotFound:
    """For a worker that is unknown, or was declared dead."""
    message = (
        f"no live worker has the id {worker_id[:200]}. If it was yours, other workers have its tasks: register again."
    )
    return WorkerNotFound(message, worker_id=worker_id)


class Sleep:
    """Whether one worker has announced that it sleeps, and whether all producers have seen that."""

    def __init__(self, db: Runs, lanes: Lanes, announced_as: str | None = None) -> None:
        self._db = db
        self._lanes = lanes
        self._announced_as = announced_as
        """The id under which the worker may have announced that it sleeps."""
        self._unaware_before: int | None = None
        """Writers before this one may not know; None before they are told, and once those writers are over."""
        self._all_know = False
        self._pause = _FIRST_LOOK_SECONDS
        self._awake_since = time.monotonic()

    @property
    def is_announced(self) -> bool:
        return self._announced_as is not None

    @property
    def relies_on_notification(self) -> bool:
        return self.is_announced and self._all_know

    async def rest(self, wakeup: Wakeup, worker_id: str, served: Served, within: float = math.inf) -> bool:
        """Nothing was found: sleep, or return at once if it is worth another look. False: the poll has come.

        After a poll it is enough to rest again, now and then: that asks whether a task is due, by one statement.
        WorkerNotFound if the worker is not registered (any more).
        """
        if wakeup.is_rung:
            return True  # while it looked
        if not wakeup.is_listening:
            await self.withdraw()
        elif not self._has_told(worker_id):
            await self._announce(worker_id, wakeup.channel)
        outlook = await self._db.run(claim.outlook(served))
        if self._lanes.learned(outlook):
            wakeup.owe()  # the looks so far have not seen what it may have been woken for
            return True
        if outlook.is_crowded and await self._lanes.set_apart(served):
            return True
        if self._unaware_before is not None:
            await self._look_again(wakeup, outlook, within)
            return True
        is_due = await wakeup.sleep(self._lanes.soonest(outlook.next_due_seconds), within)
        self._awake_since = time.monotonic()
        return is_due or self._lanes.is_wanted

    async def stay_awake(self) -> None:
        """There is work: once it has gone on for a while, producers need not notify."""
        if self.is_announced and time.monotonic() - self._awake_since > LONG_AWAKE_SECONDS:
            await self.withdraw()

    async def withdraw(self) -> None:
        """Withdraw the announcement. From here on the worker doesn't rely on notifications."""
        if self._announced_as is None:
            return
        name = self._announced_as
        self._forget()
        try:
            await self._db.run(fleet.sleeps(name, False))
        except DatabaseUnavailable:
            self._announced_as = self._announced_as or name  # it costs producers a little until it is withdrawn

    def _has_told(self, worker_id: str) -> bool:
        # Declared dead meanwhile, a worker goes on under another id, of which no producer was told.
        return self._announced_as == worker_id and (self._all_know or self._unaware_before is not None)

    def _forget(self) -> None:
        self._announced_as, self._unaware_before, self._all_know = None, None, False

    async def _announce(self, worker_id: str, channel: str) -> None:
        self._forget()
        self._announced_as = worker_id
        if not await self._db.run(fleet.sleeps(worker_id, True, channel)):
            self._forget()
            raise not_registered(worker_id)
        # Asked for once the announcement is committed: a producer that begins to write from now on sees it.
        self._unaware_before = await self._db.run(claim.next_writer())
        self._awake_since, self._pause = time.monotonic(), _FIRST_LOOK_SECONDS

    async def _look_again(self, wakeup: Wakeup, outlook: Outlook, within: float) -> None:
        assert self._unaware_before is not None
        if outlook.oldest_writer >= self._unaware_before:
            self._unaware_before, self._all_know = None, True  # the next look is the last that is needed
        else:
            await wakeup.nap(min(self._pause, within))
            self._pause = min(2 * self._pause, _LONGEST_LOOK_SECONDS)

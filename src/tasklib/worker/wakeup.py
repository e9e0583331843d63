"""When an idle worker looks for tasks again: a notification, the next due time, or the poll beside them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import psycopg

from tasklib.config import Config, channel_of
from tasklib.db.connect import connect_async
from tasklib.db.reconnecting import backoff
from tasklib.errors import DatabaseUnavailable
from tasklib.events import DatabaseBack, DatabaseLost, Events, Woken
from tasklib.sql import quoted
from tasklib.store import control, fleet

_WATCHDOG_SECONDS = 30.0
_SHORTEST_POLL_FRACTION = 1 / 16


class Wakeup:
    """`arm()` before looking for tasks, `sleep()` if there were none: what is announced in between is not missed."""

    def __init__(self, poll_interval_seconds: float, events: Events) -> None:
        self._longest = poll_interval_seconds
        self._events = events
        self.is_rung = False
        """Something was announced since `arm()`."""
        self._sleeper: asyncio.Future[bool] | None = None
        self._idle_rounds = 0
        self.listening = asyncio.Event()
        self.cancel_requested = asyncio.Event()
        """Somebody cancelled a running task, perhaps one of ours."""
        self.on_waking: Callable[[], None] = self.wake
        """What a ring does to a sleeper: it may do something first, and then has to `wake()` it."""
        self.on_fleet_change: Callable[[], None] = lambda: None
        """Somebody asked a worker to drain, perhaps us."""

    def arm(self) -> None:
        self.is_rung = False

    def ring(self) -> None:
        """Something may be there to do."""
        self.is_rung = True
        if self._sleeper is not None and not self._sleeper.done():
            self.on_waking()

    def wake(self) -> None:
        """Let the sleeper go on, if there is one."""
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(True)

    def hear(self, message: str) -> None:
        """A notification has come."""
        match message:
            case control.CANCEL:
                self.cancel_requested.set()
            case fleet.DRAIN:
                self.on_fleet_change()
            case _:
                self.ring()

    def busy(self) -> None:
        """Tasks were found: the next idle spell begins with a short poll again."""
        self._idle_rounds = 0

    async def sleep(self, next_due_seconds: float | None) -> None:
        """Wait for a ring, the next due task or the poll, whichever comes first."""
        poll = self._poll_seconds()
        due_first = next_due_seconds is not None and next_due_seconds < poll
        pause = max(0.0, next_due_seconds) if next_due_seconds is not None and due_first else poll
        rung = await self._ring_within(pause)
        if self._events.routine:
            self._events.emit_routine(Woken("notify" if rung else "due" if due_first else "poll"))

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
        if not self.listening.is_set():
            interval *= min(1.0, _SHORTEST_POLL_FRACTION * 2.0**self._idle_rounds)
            self._idle_rounds = min(self._idle_rounds + 1, 8)
        return interval * random.uniform(0.75, 1.0)


def _let_sleep(sleeper: asyncio.Future[bool]) -> None:
    if not sleeper.done():
        sleeper.set_result(False)


async def listen(config: Config, schema: str, wakeup: Wakeup, events: Events) -> None:
    """LISTEN for ever: reconnect after any loss, listen again, and look for tasks at once."""
    failures, lost = 0, False
    while True:
        connection = None
        try:
            url = config.listen_database_url or config.database_url
            connection = await connect_async(config, url=url, role="listener")
            await connection.execute(f"LISTEN {quoted(channel_of(schema))}".encode())
            failures = 0
            if lost:
                lost = False
                events.emit(DatabaseBack("listen"))
            wakeup.listening.set()
            wakeup.ring()
            await _ring_on_notifications(connection, wakeup)
        except (psycopg.Error, DatabaseUnavailable, OSError, TimeoutError) as e:
            wakeup.listening.clear()
            if not lost:
                lost = True
                events.emit(DatabaseLost("listen", str(e) or "no answer"))
            await asyncio.sleep(backoff(failures))
            failures += 1
        finally:
            if connection is not None:
                connection.pgconn.finish()


async def _ring_on_notifications(connection: psycopg.AsyncConnection, wakeup: Wakeup) -> None:
    """Straight from the socket: a generator of notifications would take longer to tell than the server does."""
    pgconn, loop = connection.pgconn, asyncio.get_running_loop()
    socket = pgconn.socket  # asked now: a connection that is lost doesn't tell
    lost: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        try:
            pgconn.consume_input()
            while notification := pgconn.notifies():
                wakeup.hear(notification.extra.decode())
        except psycopg.Error as e:
            loop.remove_reader(socket)  # libpq has closed it, and its number may soon be another one's
            if not lost.done():
                lost.set_exception(e)
            return
        # Begun anew: libuv ends a watch in which it saw an error, though there may be more to read.
        loop.remove_reader(socket)
        loop.add_reader(socket, read)

    connection.add_notify_handler(lambda notification: wakeup.hear(notification.payload))  # while we ask
    while True:
        loop.add_reader(socket, read)
        try:
            async with asyncio.timeout(_WATCHDOG_SECONDS):
                await asyncio.shield(lost)
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(socket)
        # Silence may be peace or a half-open socket: ask.
        await connection.execute("SELECT 1")

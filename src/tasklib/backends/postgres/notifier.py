"""One LISTEN connection per process, and everything in the process that waits for its notifications.

It listens on two channels: the one that all processes share, and one of its own, on which producers wake the workers
that sleep here. The connection is opened again after any loss, and asked for a sign of life when it has been silent for
a while: a half-open socket is silent, too.

LISTEN succeeds where no notification will ever arrive: through a pooler in transaction mode, in another database, on
the coordinator of a Citus cluster. So the process first notifies itself, from where the triggers of the tables would,
and polls until that has arrived.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

import psycopg

from tasklib.config import Config, channel_of
from tasklib.db.connect import connect_async
from tasklib.db.query import Runs
from tasklib.db.reconnecting import backoff
from tasklib.errors import DatabaseUnavailable
from tasklib.formatting import duration
from tasklib.sql import quoted
from tasklib.store import control, fleet
from tasklib.store.schema import notify

_WATCHDOG_SECONDS = 30.0
_PROBE_SECONDS = 10.0
"""A notification that has not arrived after this time will not arrive."""
Hear: TypeAlias = Callable[[str | None], None]
"""Called with each message to all; with None if any may have been missed."""


class Notifier:
    """Look, and wait if there was nothing: what is announced in between is not missed.

    mark = notifier.mark()
    ...                                 # look
    await notifier.wait(30, since=mark)     # true if something changed; then read again
    """

    def __init__(
        self,
        config: Config,
        db: Runs,
        *,
        role: str = "listener",
        on_lost: Callable[[str, str], None] = lambda purpose, reason: None,
        on_back: Callable[[str], None] = lambda purpose: None,
        on_silence: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._config = config
        self._db = db
        self._role = role
        self._on_lost = on_lost
        self._on_back = on_back
        self._on_silence = on_silence
        self._count = 0
        self._orders = 0
        self.channel = f"tasklib_wake_{secrets.token_hex(8)}"
        """On which the workers that sleep here are woken."""
        self.sleepers: dict[str, Callable[[], None]] = {}
        """What wakes a worker that sleeps here, by its id."""
        self.on_away: Callable[[str], None] = lambda worker_id: None
        """A worker was woken that doesn't sleep here just now."""
        self.hearing: set[Hear] = set()
        self.told: dict[str, Callable[[], None]] = {}
        """What to call for one message alone, and if any may have been missed."""
        self._waiting: set[asyncio.Future[None]] = set()
        self._waiting_for_orders: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self.listening = asyncio.Event()
        """Set while notifications arrive. Otherwise changes are found only by polling."""
        self.is_stopped = False
        """The process is about to end: answer now."""

    @property
    def is_listening(self) -> bool:
        return self.listening.is_set()

    def start(self, schema: str) -> None:
        if self._config.listen:
            self._task = asyncio.create_task(self.listen(schema))

    def stop(self) -> None:
        """Everything that waits stops waiting, now and from now on."""
        self.is_stopped = True
        self.ring()

    async def close(self) -> None:
        self.stop()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @contextmanager
    def heard_by(self, hear: Hear) -> Iterator[None]:
        """Pass each message on to this function while the block runs."""
        self.hearing.add(hear)
        try:
            yield
        finally:
            self.hearing.discard(hear)

    def mark(self, *, orders: bool = False) -> int:
        """A mark of this moment, from which to wait for changes (or orders to workers)."""
        return self._orders if orders else self._count

    def ring(self, message: str | None = None) -> None:
        """Something has changed; None: of any kind."""
        self._count += 1
        for hear in tuple(self.hearing):
            hear(message)
        for call in tuple(self.told.values()) if message is None else filter(None, [self.told.get(message)]):
            call()
        _wake(self._waiting)
        if message is None or message in (control.CANCEL, fleet.DRAIN):
            self._orders += 1
            _wake(self._waiting_for_orders)

    def wake(self, worker_id: str) -> None:
        """A producer has work for this worker."""
        sleeper = self.sleepers.get(worker_id)
        if sleeper is not None:
            sleeper()
        else:
            self.on_away(worker_id)

    def _hear(self, channel: str, message: str) -> None:
        if message == self.channel:  # the probe
            self.listening.set()
            self.ring()
        elif channel == self.channel:
            self.wake(message)
        else:
            self.ring(message)

    async def wait(self, seconds: float, *, since: int | None = None, orders: bool = False) -> bool:
        """Wait for a notification, but no longer than this; without LISTEN no longer than the poll interval.

        `orders`: only for those that ask workers to drain or to stop a task.
        """
        if self.is_stopped or (since is not None and since != self.mark(orders=orders)):
            return not self.is_stopped
        if not self.is_listening:
            seconds = min(seconds, self._config.poll_interval_seconds)
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiting_for_orders if orders else self._waiting
        waiters.add(waiting)
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await waiting
            return not self.is_stopped
        except TimeoutError:
            return False
        finally:
            waiters.discard(waiting)

    async def listen(self, schema: str) -> None:
        """LISTEN for ever: reconnect after any loss, listen again, and let everything that waits look at once."""
        failures, lost = 0, False
        while True:
            connection = None
            try:
                url = self._config.listen_database_url or self._config.database_url
                connection = await connect_async(self._config, url=url, role=self._role)
                for channel in (channel_of(schema), self.channel):
                    await connection.execute(f"LISTEN {quoted(channel)}".encode())
                if lost:
                    self._on_back("listen")
                failures, lost = 0, False
                probing = asyncio.create_task(self._probe())
                try:
                    await self._read(connection)
                finally:
                    probing.cancel()
            except (psycopg.Error, DatabaseUnavailable, OSError, TimeoutError) as e:
                self.listening.clear()
                if not lost:
                    self._on_lost("listen", str(e) or "no answer")
                lost = True
                self.ring()  # those that wait begin to poll
                await asyncio.sleep(backoff(failures))
                failures += 1
            finally:
                self.listening.clear()
                if connection is not None:
                    connection.pgconn.finish()

    async def _probe(self) -> None:
        """Notify oneself until it arrives, and say once that it does not."""
        is_silent = False
        while not self.is_listening:
            reason = f"a notification did not arrive within {duration(_PROBE_SECONDS)}"
            try:
                await self._db.run(notify(self.channel, self.channel))
                async with asyncio.timeout(_PROBE_SECONDS):
                    await self.listening.wait()
                return
            except TimeoutError:
                pass
            except DatabaseUnavailable:  # which is reported elsewhere
                await asyncio.sleep(backoff(0))
                continue
            except psycopg.Error as e:
                reason = str(e)
            if not is_silent:
                self._on_silence(reason)
                is_silent = True
            await asyncio.sleep(_WATCHDOG_SECONDS)

    async def _read(self, connection: psycopg.AsyncConnection) -> None:
        """Straight from the socket: psycopg's generator of notifications takes longer than the server does."""
        pgconn, loop = connection.pgconn, asyncio.get_running_loop()
        socket = pgconn.socket  # read now: a lost connection has no socket
        lost: asyncio.Future[None] = loop.create_future()

        def read() -> None:
            try:
                pgconn.consume_input()
                while notification := pgconn.notifies():
                    self._hear(notification.relname.decode(), notification.extra.decode())
            except psycopg.Error as e:
                loop.remove_reader(socket)  # libpq has closed it, and its number may soon be another one's
                if not lost.done():
                    lost.set_exception(e)
                return
            # Begun anew: libuv ends a watch in which it saw an error, though there may be more to read.
            loop.remove_reader(socket)
            loop.add_reader(socket, read)

        connection.add_notify_handler(lambda heard: self._hear(heard.channel, heard.payload))  # while we ask
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


def _wake(waiters: set[asyncio.Future[None]]) -> None:
    for waiting in waiters:
        if not waiting.done():
            waiting.set_result(None)

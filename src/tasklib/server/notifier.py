"""Notifier from the database for all who wait in this server: one LISTEN connection, and a poll where there is none."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg

from tasklib.config import Config, channel_of
from tasklib.db.connect import connect_async
from tasklib.db.reconnecting import backoff
from tasklib.errors import DatabaseUnavailable
from tasklib.sql import quoted
from tasklib.store import control, fleet

_WATCHDOG_SECONDS = 30.0


class Notifier:
    """Look, and wait if there was nothing: what is announced in between is not missed.

    mark = notifier.mark()
    ...                                 # look
    await notifier.wait(30, since=mark)     # true if there is news; then look again
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._count = 0
        self._orders = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._waiting_for_orders: set[asyncio.Future[None]] = set()
        self._listening: asyncio.Task[None] | None = None
        self.is_listening = False
        """False: only the poll beside it brings news."""
        self.is_stopped = False
        """The server ends: answer now."""

    def start(self, schema: str) -> None:
        if self._config.listen:
            self._listening = asyncio.create_task(self._listen(schema))

    def stop(self) -> None:
        """Everybody stops waiting, now and from now on."""
        self.is_stopped = True
        self.ring()

    async def close(self) -> None:
        self.stop()
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening

    def mark(self, *, orders: bool = False) -> int:
        """This moment, to say later since when there may be news (or orders to workers)."""
        return self._orders if orders else self._count

    def ring(self, message: str | None = None) -> None:
        """There is news; None: of any kind."""
        self._count += 1
        _wake(self._waiting)
        if message is None or message in (control.CANCEL, fleet.DRAIN):
            self._orders += 1
            _wake(self._waiting_for_orders)

    async def wait(self, seconds: float, *, since: int | None = None, orders: bool = False) -> bool:
        """Wait for a notification, but no longer than this; without LISTEN no longer than the poll interval.

        `orders`: only for those that ask workers to drain or to stop a task.
        """
        if self.is_stopped or (since is not None and since != self.mark(orders=orders)):
            return not self.is_stopped
        if not self.is_listening:
            seconds = min(seconds, self._config.poll_interval_seconds)
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        everybody = self._waiting_for_orders if orders else self._waiting
        everybody.add(waiting)
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await waiting
            return not self.is_stopped
        except TimeoutError:
            return False
        finally:
            everybody.discard(waiting)

    async def _listen(self, schema: str) -> None:
        """LISTEN for ever: reconnect after any loss, and let everybody look at once."""
        failures = 0
        while True:
            connection = None
            try:
                url = self._config.listen_database_url or self._config.database_url
                connection = await connect_async(self._config, url=url, role="server listener")
                await connection.execute(f"LISTEN {quoted(channel_of(schema))}".encode())
                failures, self.is_listening = 0, True
                self.ring()
                await self._hear(connection)
            except (psycopg.Error, DatabaseUnavailable, OSError, TimeoutError):
                self.is_listening = False
                self.ring()  # those who wait begin to poll
                await asyncio.sleep(backoff(failures))
                failures += 1
            finally:
                self.is_listening = False
                if connection is not None:
                    connection.pgconn.finish()

    async def _hear(self, connection: psycopg.AsyncConnection) -> None:
        while True:
            async for notification in connection.notifies(timeout=_WATCHDOG_SECONDS):
                self.ring(notification.payload)
            # Silence may be peace or a half-open socket: ask.
            await connection.execute("SELECT 1")
            self.ring()  # what came meanwhile may be lost on older drivers


def _wake(everybody: set[asyncio.Future[None]]) -> None:
    for waiting in everybody:
        if not waiting.done():
            waiting.set_result(None)

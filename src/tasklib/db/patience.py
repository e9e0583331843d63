"""An end to waiting: a server that doesn't answer in time is hung up on.

Cancelling the coroutine instead would have the driver ask the silent server to cancel, and wait for its answer.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Self

import psycopg


class Patience:
    """While the block runs, the server must answer within so many seconds; else the connection breaks in its hands.

    with Patience(connection, 30) as patience:
        ...
        patience.again()        # it has answered; the next answer has as long
    """

    def __init__(self, connection: psycopg.AsyncConnection, seconds: float) -> None:
        self._connection = connection
        self._seconds = max(0.0, seconds)
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self.again()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._hang_up)

    def _hang_up(self) -> None:
        """End the connection underneath whoever reads from it: to the driver it looks as if the server had gone."""
        with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(self._connection.pgconn.socket)) as ours:
            ours.shutdown(socket.SHUT_RDWR)

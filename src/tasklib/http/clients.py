"""`HttpClient` and `AsyncHttpClient`: the calls of `HttpCalls`, sent synchronously and asynchronously."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any

from tasklib.client.async_clients import AsyncClient, Closed
from tasklib.client.clients import Client
from tasklib.client.default import use
from tasklib.client.effects import Effect, Pause
from tasklib.config import Keys
from tasklib.errors import InvalidOption
from tasklib.http.calls import HttpCalls
from tasklib.http.connection import Address, AsyncHttpConnection, HttpConnection
from tasklib.http.requests import Request
from tasklib.tasks.task_id import SyncTaskId


class HttpClient(Client):
    """A `Client` that goes to a TaskLib server, for programs without a database. Safe to share between threads.

    with HttpClient("https://queue.example.com", token="tasklib_...") as client:
        task_id = client.submit_task(send_email, to="a@example.com")

    Without arguments, TASKLIB_HTTP_URL and TASKLIB_TOKEN say where to go. `verify` is a file of certificates to trust,
    an `ssl.SSLContext`, or False for none. What is safe to ask twice is asked up to `retries` times more. `keys` are
    those of sealed tasks, as in `Config`; without them TASKLIB_KEYS or TASKLIB_KEYS_FILE has them.
    """

    has_database = False

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        retries: int = 4,
        verify: bool | str | ssl.SSLContext = True,
        keys: Keys | None = None,
    ) -> None:
        self.address = Address.of(url, token, timeout=timeout, retries=retries, verify=verify)
        self.calls = HttpCalls(self.address.url, retries, id_type=SyncTaskId, keys=keys)
        self._config = self.calls.config
        self._connection = HttpConnection(self.address)

    def asynchronous(self) -> AsyncHttpClient:
        """A client to the same server for the running event loop."""
        return AsyncHttpClient(**_parts(self.address), keys=self._config.keys)

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._connection.close()

    def __repr__(self) -> str:
        return f"HttpClient({self.address.url!r})"

    def _do(self, effect: Effect) -> Any:
        match effect:
            case Request():
                return self._connection.send(effect)
            case Pause(seconds):
                return time.sleep(seconds)
        raise no_route()


class AsyncHttpClient(AsyncClient):
    """An `AsyncClient` that goes to a TaskLib server. One per event loop.

    async with AsyncHttpClient("https://queue.example.com", token="tasklib_...") as client:
        task_id = await client.submit_task(send_email, to="a@example.com")
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        retries: int = 4,
        verify: bool | str | ssl.SSLContext = True,
        keys: Keys | None = None,
    ) -> None:
        self.address = Address.of(url, token, timeout=timeout, retries=retries, verify=verify)
        self.calls = HttpCalls(self.address.url, retries, keys=keys)
        self._config = self.calls.config
        self._connection = AsyncHttpConnection(self.address)

    def close(self) -> Awaitable[None]:
        """Close the connections; a later call opens new ones. Without `await`, at the next turn of the event loop."""
        connection, self._connection = self._connection, AsyncHttpConnection(self.address)
        # Without a loop nothing is left that could close them, and they end with their sockets.
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            _closing.add(closing := loop.create_task(connection.close()))
            closing.add_done_callback(_closing.discard)
            return Closed(closing)
        return Closed()

    def __repr__(self) -> str:
        return f"AsyncHttpClient({self.address.url!r})"

    async def _do(self, effect: Effect) -> Any:
        match effect:
            case Request():
                return await self._connection.send(effect)
            case Pause(seconds):
                return await asyncio.sleep(seconds)
        raise no_route()


def no_route() -> InvalidOption:
    return InvalidOption("this call needs a client with a database: the server has no route for it.")


_closing: set[asyncio.Task[None]] = set()


def init(url: str | None = None, *, token: str | None = None, **options: Any) -> None:
    """Let `tasklib.submit_task`, `fn.submit` and all module-level calls go to this server, like `tasklib.init`."""
    use(HttpClient(url, token=token, **options))


def _parts(address: Address) -> Mapping[str, Any]:
    return {name: getattr(address, name) for name in ("url", "token", "timeout", "retries", "verify")}

"""`HttpClient` and `AsyncHttpClient`: the two skins over `HttpCalls`. Colour lives here."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tasklib import tracing
from tasklib.client.clients import AsyncClient, Client, Closed
from tasklib.client.default import use
from tasklib.client.effects import Effect, Pause
from tasklib.environment import require_https
from tasklib.errors import ConfigError, InvalidOption
from tasklib.http.calls import HttpCalls
from tasklib.http.requests import Answer, NoAnswer, Request
from tasklib.tasks.task_id import SyncTaskId

try:
    import httpx
except ImportError as e:
    raise ImportError("tasklib.http needs httpx. Install it with TaskLib: pip install 'tasklib-pg[http]'") from e

URL_VARIABLE, TOKEN_VARIABLE = "TASKLIB_HTTP_URL", "TASKLIB_TOKEN"
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.ProxyError)


@dataclass(frozen=True)
class Address:
    """Where the server is, and how it is spoken to."""

    url: str
    token: str | None = field(default=None, repr=False)
    timeout: float = 30.0
    retries: int = 4
    verify: bool | str | ssl.SSLContext = True

    def __post_init__(self) -> None:
        parts = urlsplit(self.url) if isinstance(self.url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("the server's URL begins with http:// or https:// and a host.")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ConfigError("the server's URL has no user, password, query or fragment. A token goes into token=.")
        # Not repeated: it may be a secret with a mistake in it.
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and " " not in self.token):
            raise ConfigError("a token is one word, as `tasklib token create` shows it.")
        require_https(self.url, self.token)
        if isinstance(self.timeout, bool) or not 0 < self.timeout < float("inf"):
            raise ConfigError(f"timeout must be more than 0 seconds, not {self.timeout!r}.")
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            raise ConfigError(f"retries must be 0 or more, not {self.retries!r}.")

    @classmethod
    def of(cls, url: str | None, token: str | None, **more: Any) -> Address:
        """What was given, else what the environment says."""
        url = url or os.environ.get(URL_VARIABLE)
        if not url:
            raise ConfigError(f"where is the server? Give its URL, or set {URL_VARIABLE}.")
        return cls(url.rstrip("/"), token or os.environ.get(TOKEN_VARIABLE) or None, **more)

    def options(self) -> dict[str, Any]:
        """For httpx's clients of either colour."""
        headers = {"Accept": "application/json", "User-Agent": "tasklib"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        # Redirects are not followed: the token is for this server.
        return {"headers": headers, "verify": self._trust(), "follow_redirects": False}

    def arguments(self, request: Request) -> dict[str, Any]:
        """One request as httpx takes it."""
        trace = tracing.current() if request.trace is None else request.trace
        headers: dict[str, str] = dict(trace)
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        return {
            "method": request.method,
            "url": self.url + request.path,
            "params": list(request.query),
            "content": None if request.body is None else request.body.encode("utf-8", "surrogatepass"),
            "headers": headers,
            "timeout": self.timeout + request.extra_seconds,
        }

    def _trust(self) -> bool | ssl.SSLContext:
        return ssl.create_default_context(cafile=self.verify) if isinstance(self.verify, str) else self.verify


class HttpClient(Client):
    """A `Client` that goes to a TaskLib server, for programs without a database. Safe to share between threads.

    with HttpClient("https://queue.example.com", token="tasklib_...") as client:
        task_id = client.submit_task(send_email, to="a@example.com")

    Without arguments, TASKLIB_HTTP_URL and TASKLIB_TOKEN say where to go. `verify` is a file of certificates to trust,
    an `ssl.SSLContext`, or False for none. What is safe to ask twice is asked up to `retries` times more.
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
    ) -> None:
        self.address = Address.of(url, token, timeout=timeout, retries=retries, verify=verify)
        self.calls = HttpCalls(self.address.url, retries, id_type=SyncTaskId)
        self.config = self.calls.config
        self._http: httpx.Client | None = None

    def asynchronous(self) -> AsyncHttpClient:
        """A client to the same server for the running event loop."""
        return AsyncHttpClient(**_parts(self.address))

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        http, self._http = self._http, None
        if http is not None:
            http.close()

    def __repr__(self) -> str:
        return f"HttpClient({self.address.url!r})"

    def _do(self, effect: Effect) -> Any:
        match effect:
            case Request():
                return self._send(effect)
            case Pause(seconds):
                return time.sleep(seconds)
        raise no_route()

    def _send(self, request: Request) -> Answer | NoAnswer:
        if self._http is None:
            self._http = httpx.Client(**self.address.options())
        try:
            return _answer(self._http.request(**self.address.arguments(request)))
        except httpx.HTTPError as e:
            return _lost(e)


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
    ) -> None:
        self.address = Address.of(url, token, timeout=timeout, retries=retries, verify=verify)
        self.calls = HttpCalls(self.address.url, retries)
        self.config = self.calls.config
        self._http: httpx.AsyncClient | None = None

    def close(self) -> Awaitable[None]:
        """Close the connections; a later call opens new ones. Without `await`, as soon as the loop comes to it."""
        http, self._http = self._http, None
        if http is not None:
            # Without a loop there is nobody left to close them, and they end with their sockets.
            with suppress(RuntimeError):
                _closing.add(closing := asyncio.get_running_loop().create_task(http.aclose()))
                closing.add_done_callback(_closing.discard)
                return Closed(closing)
        return Closed()

    def __repr__(self) -> str:
        return f"AsyncHttpClient({self.address.url!r})"

    async def _do(self, effect: Effect) -> Any:
        match effect:
            case Request():
                return await self._send(effect)
            case Pause(seconds):
                return await asyncio.sleep(seconds)
        raise no_route()

    async def _send(self, request: Request) -> Answer | NoAnswer:
        if self._http is None:
            self._http = httpx.AsyncClient(**self.address.options())
        try:
            return _answer(await self._http.request(**self.address.arguments(request)))
        except httpx.HTTPError as e:
            return _lost(e)


def no_route() -> InvalidOption:
    return InvalidOption("this call needs a client with a database: the server has no route for it.")


_closing: set[asyncio.Task[None]] = set()


def init(url: str | None = None, *, token: str | None = None, **options: Any) -> None:
    """Let `tasklib.submit_task`, `fn.submit` and all module-level calls go to this server, like `tasklib.init`."""
    use(HttpClient(url, token=token, **options))


def _parts(address: Address) -> Mapping[str, Any]:
    return {name: getattr(address, name) for name in ("url", "token", "timeout", "retries", "verify")}


def _answer(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.content, response.headers)


def _lost(error: httpx.HTTPError) -> NoAnswer:
    return NoAnswer(str(error) or type(error).__name__, was_sent=not isinstance(error, _NOT_SENT))

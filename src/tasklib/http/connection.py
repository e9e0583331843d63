"""Sending requests to a TaskLib server: the one place that does, for clients and for workers over HTTP.

A client's requests come to an Answer, or none (`AsyncHttpConnection`). A worker's come to the answer's JSON, a refusal,
or `DatabaseUnavailable` (`WorkerConnection`).
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import from_json, to_json

from tasklib import tracing
from tasklib.config import Config
from tasklib.environment import require_https
from tasklib.errors import ConfigError, DatabaseUnavailable
from tasklib.http.problems import code_and_detail
from tasklib.http.requests import Answer, NoAnswer, Request

try:
    import httpx
except ImportError as e:
    raise ImportError("tasklib.http needs httpx. Install it with TaskLib: pip install 'tasklib-pg[http]'") from e

URL_VARIABLE, TOKEN_VARIABLE = "TASKLIB_HTTP_URL", "TASKLIB_TOKEN"
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.ProxyError)

_PASSES = (401, 403, 408, 421, 429)
"""Refusals that may be undone without this worker: a token, a proxy, a limit."""


@dataclass(frozen=True)
class Address:
    """Where the server is, and how it is spoken to."""

    url: str
    token: str | None = field(default=None, repr=False)
    timeout: float = 30.0
    """Seconds until a request without an answer counts as lost; what the server may wait for comes on top."""
    retries: int = 4
    verify: bool | str | ssl.SSLContext = True
    connect_timeout: float | None = None
    """None: as long as the rest may take."""

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
        """For httpx's clients, sync or async."""
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
        seconds = self.timeout + request.extra_seconds
        return {
            "method": request.method,
            "url": self.url + request.path,
            "params": list(request.query),
            "content": None if request.body is None else request.body.encode("utf-8", "surrogatepass"),
            "headers": headers,
            "timeout": httpx.Timeout(seconds, connect=self.connect_timeout or seconds),
        }

    def _trust(self) -> bool | ssl.SSLContext:
        return ssl.create_default_context(cafile=self.verify) if isinstance(self.verify, str) else self.verify


class HttpConnection:
    """Sends requests, one after the other or from many threads. Opened when needed, also after `close()`."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._http: httpx.Client | None = None

    def send(self, request: Request) -> Answer | NoAnswer:
        if self._http is None:
            self._http = httpx.Client(**self.address.options())
        try:
            return _answer(self._http.request(**self.address.arguments(request)))
        except (httpx.HTTPError, OSError) as e:
            return _no_answer(e)

    def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            http.close()


class AsyncHttpConnection:
    """The same for one event loop."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._http: httpx.AsyncClient | None = None

    async def send(self, request: Request) -> Answer | NoAnswer:
        if self._http is None:
            self._http = httpx.AsyncClient(**self.address.options())
        try:
            return _answer(await self._http.request(**self.address.arguments(request)))
        except (httpx.HTTPError, OSError) as e:
            return _no_answer(e)

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()


def _answer(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.content, response.headers)


def _no_answer(error: Exception) -> NoAnswer:
    return NoAnswer(str(error) or type(error).__name__, was_sent=not isinstance(error, _NOT_SENT))


class Refused(Exception):
    """The server understood, and repeating it would change nothing."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail


def server_address(url: str, token: str | None, config: Config) -> Address:
    """The server of a worker with this configuration."""
    return Address(
        url.rstrip("/"),
        token,
        timeout=config.statement_timeout_seconds,
        retries=0,  # the worker's own loops ask again: after a lost answer they ask for something else
        connect_timeout=config.connect_timeout_seconds,
    )


class _NoWorkerRequests(logging.Filter):
    """httpx logs every request at INFO: the polls and heartbeats of a worker would fill the program's log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "/internal/workers/" not in record.getMessage()


_no_worker_requests = _NoWorkerRequests()


class WorkerConnection:
    """What the worker's loop asks a server, for one purpose."""

    def __init__(
        self,
        address: Address,
        purpose: str,
        *,
        on_lost: Callable[[str, str], None] = lambda purpose, reason: None,
        on_back: Callable[[str], None] = lambda purpose: None,
    ) -> None:
        logging.getLogger("httpx").addFilter(_no_worker_requests)  # once, however often it is added
        self._connection = AsyncHttpConnection(address)
        self._purpose = purpose
        self._lost = False
        self._on_lost = on_lost
        self._on_back = on_back

    async def ask(self, method: str, path: str, body: Any = None, *, wait_seconds: float = 0.0) -> Any:
        """The answer's JSON. `body` may be JSON text; `wait_seconds` is how long the server may wait for it."""
        answer = await self._connection.send(_request(method, path, body, wait_seconds))
        try:
            found = _understood(self._connection.address, answer)
        except DatabaseUnavailable as e:
            if not self._lost:
                self._lost = True
                self._on_lost(self._purpose, str(e))
            raise
        if self._lost:
            self._lost = False
            self._on_back(self._purpose)
        return found

    async def close(self) -> None:
        await self._connection.close()


class HeartbeatThreadConnection:
    """The same for the heartbeat's thread."""

    def __init__(self, address: Address) -> None:
        self._connection = HttpConnection(address)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        try:
            return _understood(self._connection.address, self._connection.send(_request(method, path, body)))
        except DatabaseUnavailable:
            self.drop()
            raise

    def drop(self) -> None:
        self._connection.close()


def _request(method: str, path: str, body: Any, wait_seconds: float = 0.0) -> Request:
    text = body if body is None or isinstance(body, str) else to_json(body).decode()
    return Request(method, f"/internal/workers{path}", body=text, extra_seconds=wait_seconds, trace={})


def _understood(address: Address, answer: Answer | NoAnswer) -> Any:
    """The answer's JSON, or Refused, or DatabaseUnavailable."""
    if isinstance(answer, NoAnswer):
        raise _unavailable(address, answer.reason)
    if answer.status < 300:
        return from_json(answer.body) if answer.body else None
    code, detail = code_and_detail(answer)
    if answer.status >= 500 or (answer.status in _PASSES and code != "queue_not_allowed"):
        raise _unavailable(address, f"it answers {answer.status}: {detail}")
    raise Refused(answer.status, code, detail)


def _unavailable(address: Address, reason: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"the TaskLib server at {address.url} can't be used: {reason}")

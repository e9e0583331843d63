"""Sending requests to a TaskLib server: the one place that does, for clients and for workers over HTTP."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tasklib import tracing
from tasklib.environment import require_https
from tasklib.errors import ConfigError
from tasklib.http.requests import Answer, NoAnswer, Request

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

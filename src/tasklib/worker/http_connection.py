"""Requests to a TaskLib server that come to an answer, a refusal, or `DatabaseUnavailable`: then try again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
from pydantic_core import from_json, to_json

from tasklib.config import Config
from tasklib.environment import require_https
from tasklib.errors import DatabaseUnavailable

_SLACK_SECONDS = 10.0
"""How much later than a long poll's own end its answer may come."""
_PASSES = (401, 403, 408, 421, 429)
"""Refusals that somebody may undo without this worker: a token, a proxy, a limit."""


class Refused(Exception):
    """The server understood, and repeating it would change nothing."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail


class HttpConnection:
    """What the worker's loop asks a server, for one purpose."""

    def __init__(
        self,
        server: Server,
        purpose: str,
        *,
        on_lost: Callable[[str, str], None] = lambda purpose, reason: None,
        on_back: Callable[[str], None] = lambda purpose: None,
    ) -> None:
        self._server = server
        self._purpose = purpose
        self._client = httpx.AsyncClient(**server.options())
        self._lost = False
        self._on_lost = on_lost
        self._on_back = on_back

    async def ask(self, method: str, path: str, host: Any = None, *, wait_seconds: float = 0.0) -> Any:
        """The answer's JSON. `host` may be JSON text."""
        try:
            response = await self._client.request(
                method, path, content=_content(host), timeout=self._server.timeout(wait_seconds)
            )
            answer = self._server.answer(response)
        except (httpx.HTTPError, DatabaseUnavailable, OSError) as e:
            raise self._report_lost(e) from e
        if self._lost:
            self._lost = False
            self._on_back(self._purpose)
        return answer

    async def close(self) -> None:
        await self._client.aclose()

    def _report_lost(self, error: Exception) -> DatabaseUnavailable:
        unavailable = self._server.unavailable(error)
        if not self._lost:
            self._lost = True
            self._on_lost(self._purpose, str(unavailable))
        return unavailable


class HttpThreadLink:
    """The same for the heartbeat's thread."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._client: httpx.Client | None = None

    def ask(self, method: str, path: str, host: Any = None) -> Any:
        try:
            self._client = self._client or httpx.Client(**self._server.options())
            response = self._client.request(method, path, content=_content(host), timeout=self._server.timeout(0))
            return self._server.answer(response)
        except (httpx.HTTPError, DatabaseUnavailable, OSError) as e:
            self.drop()
            raise self._server.unavailable(e) from e

    def drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class Server:
    """Where it is, what opens it, and what its answers mean."""

    def __init__(self, url: str, token: str | None, config: Config) -> None:
        self.url = url.rstrip("/")
        require_https(self.url, token)
        self._token = token
        self._timeout = config.statement_timeout_seconds
        self._connect = config.connect_timeout_seconds

    def options(self) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return {"base_url": f"{self.url}/internal/workers", "headers": headers}

    def timeout(self, wait_seconds: float) -> httpx.Timeout:
        timeout = wait_seconds + _SLACK_SECONDS if wait_seconds else self._timeout
        return httpx.Timeout(timeout, connect=self._connect)

    def answer(self, response: httpx.Response) -> Any:
        """Its JSON, or Refused, or DatabaseUnavailable."""
        if response.is_success:
            return from_json(response.content) if response.content else None
        code, detail = _problem(response)
        if response.status_code >= 500 or (response.status_code in _PASSES and code != "queue_not_allowed"):
            raise DatabaseUnavailable(f"it answers {response.status_code}: {detail}")
        raise Refused(response.status_code, code, detail)

    def unavailable(self, error: Exception) -> DatabaseUnavailable:
        reason = str(error) or type(error).__name__
        return DatabaseUnavailable(f"the TaskLib server at {self.url} can't be used: {reason}")


def _content(host: Any) -> bytes | None:
    if host is None:
        return None
    return host.encode() if isinstance(host, str) else to_json(host)


def _problem(response: httpx.Response) -> tuple[str, str]:
    try:
        found = json.loads(response.content)
        return str(found["code"]), str(found["detail"])
    except (ValueError, KeyError, TypeError):
        return "unknown", response.reason_phrase or "no reason given"

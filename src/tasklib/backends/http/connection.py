"""What a worker asks a TaskLib server: each request comes to an answer, a refusal, or `DatabaseUnavailable`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_core import from_json, to_json

from tasklib.config import Config
from tasklib.errors import DatabaseUnavailable
from tasklib.http.connection import Address, AsyncHttpConnection, HttpConnection
from tasklib.http.problems import code_and_detail
from tasklib.http.requests import Answer, NoAnswer, Request

_PASSES = (401, 403, 408, 421, 429)
"""Refusals that may be undone without this worker: a token, a proxy, a limit."""


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

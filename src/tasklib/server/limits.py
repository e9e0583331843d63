"""How much a request may bring: the size of its body, the time to send it, the depth of its JSON."""

from __future__ import annotations

import asyncio
import re
from itertools import accumulate

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasklib.server.gate import is_for_programs
from tasklib.server.problems import Problem
from tasklib.server.settings import ServerSettings

_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]


class Limits:
    """ASGI middleware. A body is read here, within the limits, and handed on whole."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            receive = await self._with_body(scope, receive)
        await self.app(scope, receive, send)

    async def _with_body(self, scope: Scope, receive: Receive) -> Receive:
        headers = Headers(scope=scope)
        if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
            return receive
        if int(headers.get("content-length", "0")) > self._settings.max_body_bytes:
            raise self._too_large()
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = kind == "application/json" or kind.endswith("+json")
        if is_for_programs(scope["path"]) and not is_json:
            raise Problem(415, "not_json", "Only JSON is understood", "Send the body as application/json.")
        body = await self._read(receive)
        if is_json and depth(body) > self._settings.max_depth:
            most = self._settings.max_depth
            raise Problem(422, "too_deep", "The JSON is nested too deep", f"It may be {most} levels deep.")
        return _replayed(body, receive)

    async def _read(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._settings.body_timeout_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "bad_request", "Bad Request", "The body ended early.")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._settings.max_body_bytes:
                        raise self._too_large()
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            seconds = self._settings.body_timeout_seconds
            detail = f"The whole body must be here within {seconds:g} s."
            raise Problem(408, "body_too_slow", "The body came too slowly", detail) from None

    def _too_large(self) -> Problem:
        most = self._settings.max_body_bytes
        return Problem(413, "body_too_large", "The body is too large", f"A body may have {most} bytes.")


def depth(text: bytes) -> int:
    """How deep JSON is nested, without reading it: brackets outside of strings."""
    if text.count(b"[") + text.count(b"{") <= 4:  # most bodies
        return 4
    brackets = _STRINGS.sub(b"", text).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _replayed(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay

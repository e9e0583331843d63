"""How much a request may bring: the size of its body, the time to send it, the depth of its JSON."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from itertools import accumulate

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasklib.server.auth import is_for_programs, path_in
from tasklib.server.problems import Problem
from tasklib.server.settings import ServerSettings

BODY_IS_READ = "tasklib.body_is_read"
_LINGER_SECONDS, _LINGER_BYTES = 2.0, 32 * 1024 * 1024
# Possessive, and to the end if a string has none: whatever it is given, it never looks back.
STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
STEPS = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]
"""What each byte outside of strings adds to the depth."""


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
        if not has_body(headers):
            return receive
        size = headers.get("content-length", "0")
        if not size.isdecimal():
            raise Problem(400, "bad_request", "Bad Request", "Content-Length must be a number.")
        if int(size) > self._settings.max_body_bytes:
            raise self._too_large()
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = kind == "application/json" or kind.endswith("+json")
        if is_for_programs(path_in(scope)) and not is_json:
            raise Problem(415, "not_json", "Only JSON is accepted", "Send the body as application/json.")
        body = await self._read(receive)
        scope[BODY_IS_READ] = True
        if is_json and not is_result(path_in(scope)) and is_deeper(body, self._settings.max_depth):
            most = self._settings.max_depth
            raise Problem(422, "too_deep", "The JSON is nested too deep", f"It may be {most} levels deep.")
        return _replayed(body, receive)

    async def _read(self, receive: Receive) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(self._settings.body_timeout_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "bad_request", "Bad Request", "The body ended early.")
                    body += message.get("body", b"")
                    if len(body) > self._settings.max_body_bytes:
                        raise self._too_large()
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            seconds = self._settings.body_timeout_seconds
            detail = f"The whole body must arrive within {seconds:g} s."
            raise Problem(408, "body_too_slow", "The body arrived too slowly", detail) from None

    def _too_large(self) -> Problem:
        most = self._settings.max_body_bytes
        return Problem(413, "body_too_large", "The body is too large", f"A body may have {most} bytes.")


def has_body(headers: Headers) -> bool:
    """True if a body comes with the request."""
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def is_deeper(text: bytes, most: int) -> bool:
    """True if JSON is nested deeper than this: deep nesting can't overwhelm counting brackets as it would a parser."""
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    brackets = STRINGS.sub(b"", text).translate(None, _NOT_BRACKETS)
    return any(map(most.__lt__, accumulate(map(STEPS.__getitem__, brackets))))


def is_result(path: str) -> bool:
    """True for results of workers, which are judged one by one (remote/reading.py)."""
    return path.startswith("/internal/workers/") and path.endswith("/result")


async def drain(receive: Receive) -> None:
    """Let a client send on for a moment, into nothing: it reads the answer only when it has sent, or has failed to."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while size < _LINGER_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body"):
                    return


def _replayed(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay

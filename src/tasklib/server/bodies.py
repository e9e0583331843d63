"""Reading the bodies of requests: within limits of size, time and depth.

A batch of results is read although some of them can't be, and the others must not suffer for those: a result may be
nested too deep, have an integer of thousands of digits, or text that is not UTF-8. Such a batch is taken apart at its
brackets and commas, and each result is read by itself.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any
from uuid import UUID

from fastapi.routing import APIRoute
from pydantic import ValidationError, ValidatorFunctionWrapHandler
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasklib.server.auth import is_for_programs, path_in
from tasklib.server.problems import Problem
from tasklib.server.settings import ServerSettings

BODY_IS_READ = "tasklib.body_is_read"
_LINGER_SECONDS, _LINGER_BYTES = 2.0, 32 * 1024 * 1024
# Possessive, and to the end if a string has none: whatever it is given, it never looks back.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]
"""What each byte outside of strings adds to the depth."""
_BATCH = re.compile(rb'\s*\{\s*"results"\s*:\s*\[')
_COMMA = re.compile(rb",")
_TASK_ID = re.compile(rb'"task_id"\s*:\s*"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"')


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
    brackets = _STRINGS.sub(b"", text).translate(None, _NOT_BRACKETS)
    return any(map(most.__lt__, accumulate(map(_STEPS.__getitem__, brackets))))


def is_result(path: str) -> bool:
    """True for results of workers, which are read one by one (LenientRoute)."""
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


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands in the batch for a result that can't be read."""

    task_id: UUID | None
    """If at least that could be read."""
    reason: str


class LenientRoute(APIRoute):
    """A route for batches: the JSON of a request has an Unreadable for each result that can't be read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_leniently(request: Request) -> Response:
            if body := await request.body():
                # Here json() keeps what it has read.
                request._json = _parsed(body, request.app.state.services.settings.max_depth)
            return await handle(request)

        return handle_leniently


def _parsed(body: bytes, most: int) -> Any:
    is_too_deep = is_deeper(body, most)
    try:
        if not is_too_deep:
            return json.loads(body)
    except ValueError:  # not JSON, not UTF-8, or too many digits
        pass
    if (items := _items(body)) is not None:
        return {"results": [_read(item, most) for item in items]}
    if is_too_deep:
        raise Problem(422, "too_deep", "The JSON is nested too deep", f"It may be {most} levels deep.")
    raise Problem(400, "invalid_json", "The body is not JSON", "The body can't be read as JSON.")


def _items(body: bytes) -> list[bytes] | None:
    """The results of a batch, each as its text; None if this is no batch, or one without an end."""
    if not (beginning := _BATCH.match(body)):
        return None
    structure, depths = _structure(body)
    first = beginning.end()
    try:
        last = depths.index(1, first)
    except ValueError:
        return None
    commas = [m.start() for m in _COMMA.finditer(structure, first, last) if depths[m.start()] == 2]
    edges = [first - 1, *commas, last]
    return [body[a + 1 : b] for a, b in pairwise(edges)]


def _structure(text: bytes) -> tuple[bytes, list[int]]:
    """JSON with blanks in place of its strings, and how deep each byte of it is nested."""
    structure = _STRINGS.sub(lambda string: b" " * len(string[0]), text)
    return structure, list(accumulate(map(_STEPS.__getitem__, structure)))


def _read(text: bytes, most: int) -> Any:
    if is_deeper(text, most - 2):  # the batch itself is two levels
        return Unreadable(_task_id(text), f"it is nested deeper than {most} levels")
    try:
        return json.loads(text)
    except UnicodeDecodeError:
        return Unreadable(_task_id(text), "it is not UTF-8")
    except json.JSONDecodeError as e:
        return Unreadable(_task_id(text), f"it is not JSON ({e.msg})")
    except ValueError:
        return Unreadable(_task_id(text), "it has an integer of too many digits")


def _task_id(text: bytes) -> UUID | None:
    """What the object itself says, and nothing that is nested in it."""
    _, depths = _structure(text)
    shallow = bytes(byte for byte, depth in zip(text, depths, strict=True) if depth == 1)
    found = _TASK_ID.search(shallow)
    return UUID(found[1].decode()) if found else None


def or_unreadable(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """One result of the wrong form must not refuse the others."""
    if isinstance(value, Unreadable):
        return value
    try:
        return read(value)
    except ValidationError as e:
        first = e.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        return Unreadable(_task_id_of(value), f"{field}: {first['msg']}" if field else first["msg"])


def _task_id_of(value: Any) -> UUID | None:
    try:
        return UUID(value["task_id"])
    except (TypeError, KeyError, ValueError, AttributeError):
        return None

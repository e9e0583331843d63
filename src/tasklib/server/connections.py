"""Connections: what uvicorn's HTTP/1.1 protocol leaves open.

Requests that a proxy in front could read in another way are refused, and so are heads that are large or slow. A client
that doesn't read its answer is cut off, and there are only so many connections at a time.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tasklib.server.problems import Problem
from tasklib.server.settings import ServerSettings

_BARE_NEWLINE = re.compile(rb"(?<!\r)\n")
_BEYOND_LIMIT_SECONDS = 1.0
"""How long a connection beyond the limit may take to send its request, so that it can be answered."""


class StrictConnection(h11.Connection):
    """h11, without its tolerance for ambiguous requests."""

    def __init__(self, settings: ServerSettings) -> None:
        super().__init__(h11.SERVER, settings.max_header_bytes)
        self._settings = settings
        self._is_chunked = False
        self.refusal: Problem | None = None
        """Why the request was refused, if it was."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self.their_state is h11.IDLE:
            self._check_head(self.trailing_data[0])
        before = self.trailing_data[0] if self._is_chunked else b""
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as e:
            if e.error_status_hint == 431:
                raise self._too_large() from None
            raise
        if isinstance(event, h11.Request):
            self._check_headers(event)
        elif isinstance(event, h11.EndOfMessage) and self._is_chunked:
            self._check_lines(before[: len(before) - len(self.trailing_data[0])])
        return event

    def _check_head(self, data: bytes) -> None:
        """Check the raw bytes: h11 accepts a bare newline as the end of a line."""
        end = data.find(b"\r\n\r\n")
        head = data if end < 0 else data[: end + 4]
        if len(head) > self._settings.max_header_bytes:
            raise self._too_large()
        self._check_lines(head)

    def _check_lines(self, data: bytes) -> None:
        if _BARE_NEWLINE.search(data):
            raise self._refused(400, "bad_request", "Bad Request", "A line must end with CR LF.")

    def _check_headers(self, request: h11.Request) -> None:
        if len(request.headers) > self._settings.max_headers:
            raise self._too_large()
        names = {name for name, _ in request.headers}
        self._is_chunked = b"transfer-encoding" in names
        if self._is_chunked and (b"content-length" in names or request.http_version < b"1.1"):
            detail = "Transfer-Encoding can't come with Content-Length, or before HTTP 1.1."
            raise self._refused(400, "bad_request", "Bad Request", detail)

    def _too_large(self) -> h11.RemoteProtocolError:
        most, size = self._settings.max_headers, self._settings.max_header_bytes
        detail = f"A request may have {most} headers (max_headers) of {size} bytes in total (max_header_bytes)."
        return self._refused(431, "headers_too_large", "The headers are too large", detail)

    def _refused(self, *problem: Any) -> h11.RemoteProtocolError:
        self.refusal = Problem(*problem)
        return h11.RemoteProtocolError(self.refusal.detail)


class StrictProtocol(H11Protocol):
    """One connection. `partial(StrictProtocol, settings)` is what uvicorn takes as its `http`."""

    conn: StrictConnection

    def __init__(self, settings: ServerSettings, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = StrictConnection(settings)
        self._settings = settings
        self._is_beyond_limit = False
        self._head_timer = _Timer(self.loop, self._head_is_late)
        self._reader_timer = _Timer(self.loop, self._reader_is_late)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _send_at_once(transport)
        self._is_beyond_limit = len(self.connections) > self._settings.max_connections
        timeout = _BEYOND_LIMIT_SECONDS if self._is_beyond_limit else self._settings.header_timeout_seconds
        self._head_timer.start(timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer.cancel()
        self._reader_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_beyond_limit:
            self._refuse(self._too_many())
            return
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._head_timer.cancel()
        elif self.conn.trailing_data[0] and not self.transport.is_closing():
            self._head_timer.start(self._settings.header_timeout_seconds)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self.conn.refusal or Problem(400, "bad_request", "Bad Request", "This is not valid HTTP/1.1."))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reader_timer.start(self._settings.write_timeout_seconds)

    def resume_writing(self) -> None:
        self._reader_timer.cancel()
        super().resume_writing()

    def _head_is_late(self) -> None:
        if self._is_beyond_limit:
            self._refuse(self._too_many())
        elif self.conn.trailing_data[0]:
            most = self._settings.header_timeout_seconds
            detail = f"All headers must arrive within {most:g} s (header_timeout_seconds)."
            self._refuse(Problem(408, "headers_too_slow", "The headers arrived too slowly", detail))
        else:
            self.transport.close()

    def _reader_is_late(self) -> None:
        self.transport.abort()  # close() would keep unsent data until the client reads it

    def _too_many(self) -> Problem:
        most = self._settings.max_connections
        return Problem(
            503,
            "too_many_connections",
            "Too many connections",
            f"The server has {most} connections already, which is its limit (max_connections).",
            headers={"Retry-After": "1"},
        )

    def _refuse(self, problem: Problem) -> None:
        """Answer with this, unless an answer has begun, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_raw(problem))
        if self.cycle is not None:
            self.cycle.disconnected = True  # nothing else is sent
            self.cycle.message_event.set()
        self.transport.close()


def _send_at_once(transport: asyncio.Transport) -> None:
    """Event loops switch TCP_NODELAY on only for sockets that were made in one particular way."""
    accepted = transport.get_extra_info("socket")
    if accepted is not None and accepted.family in (socket.AF_INET, socket.AF_INET6):
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class _Timer:
    """Calls back once after a while, unless it is cancelled. Starting one that runs changes nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop, self._callback = loop, callback
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        if self._handle is None:
            self._handle = self._loop.call_later(seconds, self._callback)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def _raw(problem: Problem) -> bytes:
    """A whole answer, for requests that never reach the application."""
    response = problem.response(None)
    lines = [b"HTTP/1.1 %d " % response.status_code, *(b"%s: %s" % header for header in response.raw_headers)]
    return b"\r\n".join([*lines, b"connection: close", b"", bytes(response.body)])

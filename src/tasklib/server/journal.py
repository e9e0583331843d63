"""Around every request: its id, the headers that keep browsers careful, a line in the log, and no error unanswered."""

from __future__ import annotations

import re
import secrets
import time
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasklib.server.access import NOBODY, PRINCIPAL, Principal
from tasklib.server.problems import REQUEST_ID, answer, problem_of

_HARMLESS = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


class Journal:
    """The outermost ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._log: Any = structlog.get_logger("tasklib.server")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = scope[REQUEST_ID] = _request_id(Headers(scope=scope).get("x-request-id"))
        started, status = time.perf_counter(), 0

        async def stamped(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for name, value in _SECURITY.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, stamped)
        except Exception as e:
            problem = problem_of(e)
            if problem.status >= 500:
                self._log.error("request failed", request_id=request_id, code=problem.code, exc_info=True)
            if status:  # the answer has begun: all that is left is to cut it off
                raise
            await answer(Request(scope), problem)(scope, receive, stamped)
        finally:
            self._write(scope, status, time.perf_counter() - started)

    def _write(self, scope: Scope, status: int, seconds: float) -> None:
        """One line, without the query string, the body or the token: these may hold secrets."""
        principal: Principal = scope.get(PRINCIPAL, NOBODY)
        client = scope.get("client")
        write = self._log.warning if status >= 500 else self._log.info
        write(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=status,
            seconds=round(seconds, 6),
            actor=principal.actor,
            client=client[0] if client else None,
            request_id=scope[REQUEST_ID],
        )


def _request_id(given: str | None) -> str:
    """The caller's, if it can do no harm in a log, else a new one."""
    return given if given and _HARMLESS.fullmatch(given) else secrets.token_hex(8)

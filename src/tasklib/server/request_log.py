"""Around every request: its id, the headers that keep browsers careful, a line in the log, and no error unanswered."""

from __future__ import annotations

import re
import secrets
import time
from typing import Any
from urllib.parse import quote

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasklib.server.access import PRINCIPAL, UNAUTHENTICATED, Principal
from tasklib.server.auth import path_in
from tasklib.server.bodies import BODY_IS_READ, drain, has_body
from tasklib.server.problems import CODE, REQUEST_ID, answer, problem_of
from tasklib.server.settings import ServerSettings
from tasklib.store.tokens import prefix_of

_HARMLESS = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TOKEN = re.compile(r"\b(tasklib_[0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}

_ONLY_HTTPS = {"Strict-Transport-Security": "max-age=31536000"}


class RequestLog:
    """The outermost ASGI middleware."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app = app
        self._headers = {**_SECURITY, **(_ONLY_HTTPS if settings.is_public_https else {})}
        self._log: Any = structlog.get_logger("tasklib.server").bind()  # now, not anew for each line

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
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, stamped)
        except Exception as e:
            # Starlette wraps what comes after the beginning of an answer.
            cause = e.__cause__ if status and isinstance(e.__cause__, Exception) else e
            problem = problem_of(cause)
            scope[CODE] = problem.code
            if problem.status >= 500:
                is_a_mistake = problem.code == "internal_error"
                said = {"code": problem.code, "reason": str(cause)[:500], "exc_info": is_a_mistake}
                self._log.error("request failed", request_id=request_id, **said)
            # An answer that has begun is left unfinished; its connection is closed.
            if not status:
                await answer(Request(scope), problem)(scope, receive, _lingering(scope, receive, stamped))
        finally:
            self._write(scope, status, time.perf_counter() - started)

    def _write(self, scope: Scope, status: int, seconds: float) -> None:
        """One line, without the query string, the body or the token: these may hold secrets."""
        principal: Principal = scope.get(PRINCIPAL, UNAUTHENTICATED)
        client = scope.get("client")
        write = self._log.warning if status >= 500 else self._log.info
        if status < 400 and path_in(scope).startswith("/health/"):
            write = self._log.debug
        write(
            "request",
            method=scope["method"],
            path=_path(scope),
            status=status,
            seconds=round(seconds, 6),
            actor=principal.actor,
            client=client[0] if client else None,
            request_id=scope[REQUEST_ID],
            **_refusal(scope, principal, status),
        )


def _refusal(scope: Scope, principal: Principal, status: int) -> dict[str, Any]:
    """Why a request was refused, and which token came with it: its prefix, which is no secret."""
    if status < 400:
        return {}
    said: dict[str, Any] = {"code": scope[CODE]} if CODE in scope else {}
    text = Headers(scope=scope).get("authorization", "").partition(" ")[2].strip()
    prefix = principal.prefix or prefix_of(text)
    return {**said, "token": prefix} if prefix else said


def _path(scope: Scope) -> str:
    """Escaped, so that it can't forge a log line; and without a token that was put there by mistake."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    return _TOKEN.sub(r"\1_***", raw.decode("ascii", "backslashreplace"))[:500]


def _request_id(given: str | None) -> str:
    """The caller's, if it can do no harm in a log, else a new one."""
    return given if given and _HARMLESS.fullmatch(given) else secrets.token_hex(8)


def _lingering(scope: Scope, receive: Receive, send: Send) -> Send:
    """Answer a request whose body was not read, so that the client can read the answer."""
    if scope.get(BODY_IS_READ) or not has_body(Headers(scope=scope)):
        return send

    async def lingering(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["Connection"] = "close"
        if message["type"] != "http.response.body" or message.get("more_body"):
            await send(message)
            return
        await send({**message, "more_body": True})
        await drain(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return lingering

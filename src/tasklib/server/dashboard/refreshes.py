"""Refreshes: the parts of a screen that a page left open fetches anew, made once for all viewers with the same rights.

A refresh has no frame, no message of an action and no words for ages, which the script of the page writes. So while
nothing changes, its text stays the same, and a page that names the text it has seen is answered 304.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tasklib.server.access import PRINCIPAL, UNAUTHENTICATED, Principal
from tasklib.server.sessions import COOKIE

CSRF_MARK = secrets.token_hex(32)
"""Stands in a shared answer for the token against forged forms, which each session has its own of."""
SHARED_SECONDS = 1.0
"""An answer to a tick is given to others for this long: all pages hear of a tick at once."""
TICK = "tasklib-tick"
"""The header of a refresh that a tick has caused, not a reader."""
_REFRESH = "tasklib.refresh"
_MOST_KEPT = 200

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ScreenRoute(APIRoute):
    """A route of the dashboard. Its refreshes are shared."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            if request.method != "GET" or "hx-request" not in request.headers:
                return await handle(request)
            request.scope[_REFRESH] = True
            return await _refreshes(request).answer(request, handle)

        return answer


def is_refresh(request: Request) -> bool:
    """True while a screen is made for `Refreshes`."""
    return bool(request.scope.get(_REFRESH))


@dataclass(frozen=True, slots=True)
class Made:
    """An answer without anything of the one who asked."""

    text: bytes
    seen: str
    """Its ETag."""
    headers: dict[str, str]
    at: float


class Refreshes:
    """The answers of the last moment, and those that are being made."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._made: dict[object, Made] = {}
        self._making: dict[object, asyncio.Task[Response]] = {}

    async def answer(self, request: Request, handle: Handler) -> Response:
        key = _key(request)
        made = self._made.get(key)
        may_share = TICK in request.headers
        if not (may_share and made is not None and made.at > self._clock() - SHARED_SECONDS):
            response = await (self._joined(key, request, handle) if may_share else handle(request))
            if response.status_code != 200 or not isinstance(response, HTMLResponse):
                return response
            made = self._keep(key, response)
        return _given(made, request)

    async def _joined(self, key: object, request: Request, handle: Handler) -> Response:
        """One answer for all who ask at once. It is made to its end, also if the first of them has gone."""
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.create_task(handle(request))
            making.add_done_callback(lambda _: self._making.pop(key, None))
        return await asyncio.shield(making)

    def _keep(self, key: object, response: HTMLResponse) -> Made:
        now, text = self._clock(), bytes(response.body)
        if len(self._made) >= _MOST_KEPT:
            self._made = {k: m for k, m in self._made.items() if m.at > now - SHARED_SECONDS}
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        seen = hashlib.blake2b(text, digest_size=16).hexdigest()
        made = self._made[key] = Made(text, f'"{seen}"', headers, now)
        return made


def _given(made: Made, request: Request) -> Response:
    headers = {**made.headers, "ETag": made.seen}
    if request.headers.get("if-none-match") == made.seen:
        return Response(None, 304, headers)
    csrf: str = request.app.state.sessions.csrf(request.cookies.get(COOKIE))
    return Response(made.text.replace(CSRF_MARK.encode(), csrf.encode()), 200, headers)


def _key(request: Request) -> object:
    """Viewers with the same key see the same: the same address, roles, and tasks."""
    principal: Principal = request.scope.get(PRINCIPAL, UNAUTHENTICATED)
    return (
        request.scope.get("root_path", ""),
        request.url.path,
        request.url.query,
        principal.roles,
        principal.actor if principal.only_own else None,
    )


def _refreshes(request: Request) -> Refreshes:
    found: Refreshes | None = getattr(request.app.state, "refreshes", None)
    if found is None:
        found = request.app.state.refreshes = Refreshes()
    return found

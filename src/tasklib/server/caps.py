"""How much a token, and all of them together, may hold of the server at a time.

with slot_of(request).waiting():        # a Problem, 429 or 503, if too many wait already
    ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from starlette.requests import HTTPConnection
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasklib.server.problems import Problem
from tasklib.server.settings import ServerSettings

if TYPE_CHECKING:  # which knows the services, which know the caps
    from tasklib.server.access import Principal

_RETRY_AFTER = {"Retry-After": "1"}
_SLOT = "tasklib.slot"
"""Where the scope of a request has its Slot."""
_PIECE = 64 * 1024


class Cap:
    """Counts requests of one kind, and refuses those beyond its limits."""

    def __init__(self, what: str, setting: str, per_token: int, total: int | None) -> None:
        self._what, self._setting = what, setting
        self._per_token, self._total = per_token, total
        self._held: Counter[UUID | None] = Counter()

    @property
    def is_full(self) -> bool:
        """True if the limit is reached."""
        return self._total is not None and self._held.total() >= self._total

    def has_room(self, principal: Principal) -> bool:
        return not self.is_full and self._held[principal.token_id] < self._per_token

    def take(self, principal: Principal, *, forced: bool = False) -> None:
        """One more of this token's, even beyond the limits if it is forced; `release` gives it back."""
        if self.is_full and not forced:
            raise server_limit(self._what, self._setting, self._total)
        if not self.has_room(principal) and not forced:
            raise token_limit(self._what, f"{self._setting}_per_token", self._per_token)
        self._held[principal.token_id] += 1

    def release(self, principal: Principal) -> None:
        self._held[principal.token_id] -= 1
        if not self._held[principal.token_id]:
            del self._held[principal.token_id]


class Caps:
    """Those of one server."""

    def __init__(self, settings: ServerSettings) -> None:
        self.streams = Cap("open streams", "max_streams", settings.max_streams_per_token, settings.max_streams)
        self.waiting = Cap("waiting requests", "max_waiting", settings.max_waiting_per_token, settings.max_waiting)
        self.requests = Cap("requests at a time", "max_requests", settings.max_requests_per_token, None)


class Slot:
    """What one request holds: it is one of those at work until it waits, or becomes a stream."""

    def __init__(self, caps: Caps, principal: Principal) -> None:
        self._caps, self._principal = caps, principal
        self._cap = caps.requests
        self._cap.take(principal)

    def release(self) -> None:
        self._cap.release(self._principal)

    @contextmanager
    def waiting(self, *, is_needed: bool = True, may_be_refused: bool = True) -> Iterator[None]:
        """While the block runs, it is one of those that wait.

        `may_be_refused`: afterwards there may be too many at work. What was done while it waited would be lost then.
        """
        if not is_needed:
            yield
            return
        self._become(self._caps.waiting)
        try:
            yield
        except BaseException:
            self._become(self._caps.requests, forced=True)
            raise
        self._become(self._caps.requests, forced=not may_be_refused)

    def become_stream(self) -> None:
        self._become(self._caps.streams)

    def _become(self, cap: Cap, *, forced: bool = False) -> None:
        cap.take(self._principal, forced=forced)
        self._cap.release(self._principal)
        self._cap = cap


def slot_of(request: HTTPConnection) -> Slot:
    """The slot of a request whose route has roles."""
    found: Slot = request.scope[_SLOT]
    return found


class EventStream(StreamingResponse):
    """Server-sent events, as one of the open streams of a token."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterable[str], status_code: int = 200) -> None:
        super().__init__(events, status_code, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[_SLOT].become_stream()
        await super().__call__(scope, receive, send)


async def within_limits(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, caps: Caps, principal: Principal
) -> None:
    """Handle a request as one of those that its token may make at a time."""
    slot = scope[_SLOT] = Slot(caps, principal)
    try:
        await app(scope, receive, _in_pieces(send))
    finally:
        slot.release()


def _in_pieces(send: Send) -> Send:
    """Send a large body piece by piece, each when the client has read most of the last.

    So a request lasts until its answer is read, and answers that are not read are counted as long as they take room.
    """

    async def pieces(message: Message) -> None:
        body = message.get("body", b"")
        for start in range(0, len(body) - _PIECE, _PIECE):
            await send({"type": message["type"], "body": body[start : start + _PIECE], "more_body": True})
        last = (max(0, len(body) - 1) // _PIECE) * _PIECE
        await send({**message, "body": body[last:]} if body else message)

    return pieces


def token_limit(what: str, setting: str, most: int) -> Problem:
    """The token has reached its limit."""
    return Problem(
        429,
        "token_limit_reached",
        "The token has reached a limit",
        f"A token may have {most} {what} ({setting}). Try again when some have ended.",
        headers=_RETRY_AFTER,
        limit=setting,
        most=most,
    )


def server_limit(what: str, setting: str, most: int | None) -> Problem:
    """All tokens together have reached it."""
    return Problem(
        503,
        "server_limit_reached",
        "The server has reached a limit",
        f"This server has {most} {what} already, which is its limit ({setting}). Try again when some have ended.",
        headers=_RETRY_AFTER,
        limit=setting,
        most=most,
    )

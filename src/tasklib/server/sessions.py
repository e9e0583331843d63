"""Sessions of the dashboard. A browser holds a random id; its session is kept in this process only.

So a session ends with the server, on logout, after a while, and when its token expires or is revoked.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tasklib.server.problems import Problem

COOKIE = "tasklib_session"
"""Holds the id of a session, for the dashboard's pages only."""
LIFETIME_SECONDS = 12 * 3600
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that has shown a token."""

    token: str = field(repr=False)
    """Looked up at every request: a revoked token ends the session."""
    ends: float


class Sessions:
    """Begin, find and end sessions; and the tokens by which forms prove that they come from our own pages."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, per_token: int = 20) -> None:
        self._clock = clock
        self._per_token = per_token
        self._key = secrets.token_bytes(32)
        self._known: dict[str, Session] = {}

    def begin(self, token: str) -> str:
        """A new session for this token; returns the id for the cookie.

        Too many logins end the oldest sessions of the same token, never those of other tokens.
        """
        self._forget_ended()
        own = [id_ for id_, session in self._known.items() if session.token == token]
        for id_ in own[: max(0, len(own) + 1 - self._per_token)]:
            del self._known[id_]
        if len(self._known) >= _MOST:
            raise Problem(503, "too_many_sessions", "Too many are logged in", "Try again when others have logged out.")
        id_ = secrets.token_urlsafe(32)
        self._known[id_] = Session(token, self._clock() + LIFETIME_SECONDS)
        return id_

    def find(self, id_: str | None) -> Session | None:
        session = self._known.get(id_) if id_ else None
        if session is None or id_ is None:
            return None
        if session.ends <= self._clock():
            del self._known[id_]
            return None
        return session

    def end(self, id_: str | None) -> None:
        self._known.pop(id_ or "", None)

    def csrf(self, id_: str | None) -> str:
        """What a form of this session has to bring. No other site can read it from our pages."""
        return self.sign(f"csrf:{id_ or 'nobody'}")

    def is_csrf(self, id_: str | None, given: object) -> bool:
        return isinstance(given, str) and hmac.compare_digest(self.csrf(id_).encode(), given.encode())

    def sign(self, text: str) -> str:
        """Proof that this server has said it."""
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def _forget_ended(self) -> None:
        now = self._clock()
        for id_ in [i for i, session in self._known.items() if session.ends <= now]:
            del self._known[id_]

"""Logins to the dashboard: how many there may be, and a record of each."""

from __future__ import annotations

import math

from starlette.requests import Request

from tasklib.server.access import principal_of
from tasklib.server.problems import Problem
from tasklib.server.rates import RateLimit
from tasklib.server.services import Services
from tasklib.server.settings import ServerSettings
from tasklib.store import audit
from tasklib.store.audit import Action
from tasklib.store.tokens import StoredToken, prefix_of

_RECORDED_REFUSALS_PER_MINUTE = 10
"""The audit is kept for ever: a stranger must not be able to fill it."""


class Logins:
    """One for the whole server. A good token never waits for what others do with bad ones."""

    def __init__(self, settings: ServerSettings) -> None:
        self._by_token = _per_minute(settings.logins_per_minute)
        self._in_all = _per_minute(settings.all_logins_per_minute)
        self._refused = _per_minute(settings.failed_logins_per_minute)
        self._recorded = _per_minute(_RECORDED_REFUSALS_PER_MINUTE)
        self._unrecorded = 0

    async def accepted(self, request: Request, services: Services, token: StoredToken) -> None:
        """Record a login with this token; 429 if there were too many."""
        _check(self._by_token.take(token.id))
        _check(self._in_all.take())
        actor = principal_of(token).actor
        await services.run(audit.record(by=actor, action=Action.LOG_IN, target=str(token.id), details=_from(request)))

    async def refused(self, request: Request, services: Services, text: str) -> None:
        """Record that a token was refused, if that isn't one of very many; 429 if there were too many."""
        _check(self._refused.take())
        if self._recorded.take() is not None:
            self._unrecorded += 1
            return
        details = {**_from(request), "prefix": prefix_of(text), "unrecorded_before": self._unrecorded or None}
        self._unrecorded = 0
        await services.run(audit.record(by="unauthenticated", action=Action.REFUSE_LOGIN, details=details))


def _per_minute(count: int) -> RateLimit:
    return RateLimit(count / 60, count)


def _check(seconds: float | None) -> None:
    if seconds is not None:
        raise Problem(
            429,
            "too_many_logins",
            "Too many logins",
            f"Try again in {math.ceil(seconds)} s. Existing sessions are not affected.",
            headers={"Retry-After": str(math.ceil(seconds))},
        )


def _from(request: Request) -> dict[str, str | None]:
    return {"client": request.client.host if request.client else None}

"""`/live`: server-sent events that tell a page when to refresh. The page requests the content itself."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress

from fastapi import Request
from starlette.responses import Response

from tasklib.server.access import Principal
from tasklib.server.caps import EventStream
from tasklib.server.dashboard.screens import Reader, Serving, screen_router
from tasklib.server.dashboard.shell import sessions
from tasklib.server.dashboard.troubles import trouble
from tasklib.server.problems import Problem
from tasklib.server.services import Services
from tasklib.server.sessions import COOKIE
from tasklib.store import dashboard

router = screen_router()

AT_MOST_EVERY = 2.0
"""Seconds between two ticks, however much happens."""
LOOK_EVERY = 5.0
"""Seconds after which the database is asked whether anything was written, if nothing is announced."""
AT_LEAST_EVERY = 15.0
"""Seconds between two ticks, whatever happens: tasks become due, and workers are lost, without a word."""


@router.get("/live")
async def live(request: Request, principal: Reader, services: Serving) -> Response:
    """A tick at each change, and after some seconds without one, with how the fleet is."""
    return EventStream(_ticks(request, principal, services))


async def _ticks(request: Request, principal: Principal, services: Services) -> AsyncIterator[str]:
    yield "retry: 3000\n\n"
    with services.token_watch.waiting(principal) as waiting, suppress(Problem):
        while not services.notifier.is_stopped:
            await waiting.unless_over(_ticker(request, services).next())
            if not await _still_welcome(request, services):
                return
            found = await trouble(request, principal, services)
            told = {"trouble": found.severity.value, "count": found.count}
            yield f"event: tick\ndata: {json.dumps(told)}\n\n"


class Ticker:
    """One tick for all pages that are open: they fetch at once, and so get one answer."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._round: asyncio.Task[None] | None = None
        self._mark = services.notifier.mark()
        self._written: str | None = None

    async def next(self) -> None:
        """Wait for the next tick. No time passes for it while no page is open."""
        if self._round is None or self._round.done():
            self._round = asyncio.create_task(self._until_changed())
        await asyncio.shield(self._round)

    async def _until_changed(self) -> None:
        notifier, began = self._services.notifier, time.monotonic()
        await asyncio.sleep(AT_MOST_EVERY)
        mark, wait = self._mark, LOOK_EVERY - AT_MOST_EVERY
        while not notifier.is_stopped and time.monotonic() < began + AT_LEAST_EVERY:
            if await notifier.wait(wait, since=mark) or await self._is_written():
                break
            wait = LOOK_EVERY
        self._mark = notifier.mark()

    async def _is_written(self) -> bool:
        """Whether rows were written since the last look, as PostgreSQL counts them; true if it doesn't count."""
        written = await self._services.run(dashboard.written())
        before, self._written = self._written, written
        return written is None or written != before


def _ticker(request: Request, services: Services) -> Ticker:
    found: Ticker | None = getattr(request.app.state, "ticker", None)
    if found is None:
        found = request.app.state.ticker = Ticker(services)
    return found


async def _still_welcome(request: Request, services: Services) -> bool:
    """False once the session has ended; those who came without one are asked for a token when there is one."""
    id_ = request.cookies.get(COOKIE)
    if id_ is None:
        return await services.tokens.is_open()
    session = sessions(request).find(id_)
    return session is not None and await services.tokens.find(session.token) is not None

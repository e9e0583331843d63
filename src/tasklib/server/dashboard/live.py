"""`/live`: server-sent events that tell a page when to refresh. The page requests the content itself."""

from __future__ import annotations

import asyncio
import json
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

router = screen_router()

AT_MOST_EVERY = 2.0
"""Seconds between two ticks, however much happens."""
AT_LEAST_EVERY = 5.0
"""Seconds between two ticks, if nothing is announced: durations and heartbeats change by themselves."""


@router.get("/live")
async def live(request: Request, principal: Reader, services: Serving) -> Response:
    """A tick at the next change, and another one every few seconds, with how the fleet is."""
    return EventStream(_ticks(request, principal, services))


async def _ticks(request: Request, principal: Principal, services: Services) -> AsyncIterator[str]:
    yield "retry: 3000\n\n"
    with services.token_watch.waiting(principal) as waiting, suppress(Problem):
        while not services.notifier.is_stopped:
            await waiting.unless_over(asyncio.sleep(AT_MOST_EVERY))
            mark = services.notifier.mark()
            if not await _still_welcome(request, services):
                return
            found = await trouble(request, principal, services)
            told = {"trouble": found.severity.value, "count": found.count}
            yield f"event: tick\ndata: {json.dumps(told)}\n\n"
            await waiting.unless_over(services.notifier.wait(AT_LEAST_EVERY - AT_MOST_EVERY, since=mark))


async def _still_welcome(request: Request, services: Services) -> bool:
    """False once the session has ended; those who came without one are asked for a token when there is one."""
    id_ = request.cookies.get(COOKIE)
    if id_ is None:
        return await services.tokens.is_open()
    session = sessions(request).find(id_)
    return session is not None and await services.tokens.find(session.token) is not None

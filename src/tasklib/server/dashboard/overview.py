"""The first screen: how the fleet is doing."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from tasklib.server.access import client_of
from tasklib.server.dashboard.screens import Serving, Viewer, screen_router
from tasklib.server.dashboard.shell import page

router = screen_router()


@router.get("/")
async def overview(request: Request, principal: Viewer, services: Serving) -> Response:
    workers = await client_of(principal, services).workers()
    return page(request, "overview.html", workers=[w for w in workers if w.status != "dead"])

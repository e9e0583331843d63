"""What every screen's module begins with: its router, who may see it, and proof that a form is our own."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request

from tasklib.server.access import Principal, Role, allow
from tasklib.server.dashboard.shell import sessions
from tasklib.server.problems import Problem
from tasklib.server.services import Services, services
from tasklib.server.sessions import COOKIE

Viewer = Annotated[Principal, Depends(allow(Role.VIEWER))]
Reader = Annotated[Principal, Depends(allow(Role.VIEWER, Role.SUBMITTER))]
"""Principals that may see tasks: a submitter its own."""
Operator = Annotated[Principal, Depends(allow(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(allow(Role.ADMIN))]
Serving = Annotated[Services, Depends(services)]

_SAFE = ("GET", "HEAD")


async def genuine(request: Request) -> None:
    """Nothing changes at the wish of another site: a form must come from a page of ours, and bring its token."""
    if request.method in _SAFE:
        return
    if not _is_same_site(request):
        raise Problem(403, "origin_not_allowed", "Not from another site", "A page of another site made this request.")
    given = request.headers.get("x-csrf-token") or (await request.form()).get("csrf")
    if not sessions(request).is_csrf(request.cookies.get(COOKIE), given):
        raise Problem(403, "form_outdated", "This form is out of date", "Go back, load the page again, and try again.")


def screen_router() -> APIRouter:
    """A router for screens. Its forms are checked to be genuine, all of them."""
    return APIRouter(dependencies=[Depends(genuine)], include_in_schema=False)


def _is_same_site(request: Request) -> bool:
    """What the browser says. Sec-Fetch-Site first: a proxy that renames the host doesn't change it."""
    if site := request.headers.get("sec-fetch-site"):
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")

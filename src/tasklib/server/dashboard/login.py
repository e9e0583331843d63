"""In with a token, out with a click."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Form, Request
from starlette.responses import RedirectResponse, Response

from tasklib.server.access import Principal, Role, anybody, principal_of
from tasklib.server.dashboard.screens import Serving, screen_router
from tasklib.server.dashboard.shell import is_secure, local_path, page, root_of, sessions
from tasklib.server.logins import Logins
from tasklib.server.sessions import COOKIE, LIFETIME_SECONDS

router = screen_router()
Anybody = Annotated[Principal, Depends(anybody)]


@router.get("/login")
async def login_page(request: Request, principal: Anybody, next: str = "/") -> Response:
    if principal.may(Role.VIEWER):
        return RedirectResponse(root_of(request) + local_path(next), 303)
    return page(request, "login.html", next=local_path(next), error=None)


@router.post("/login")
async def login(
    request: Request,
    principal: Anybody,
    services: Serving,
    token: Annotated[str, Form(max_length=500)] = "",
    next: Annotated[str, Form(max_length=4000)] = "/",
) -> Response:
    """A new session with a new id, whatever the browser had before."""
    found = await services.tokens.find(token.strip())
    error = None
    if found is None:
        error = "This token is unknown, expired or revoked."
    elif not principal_of(found).may(Role.VIEWER, Role.SUBMITTER):
        error = "This token can't open the dashboard: that needs the role viewer, submitter, approver or operator."
    logins: Logins = request.app.state.logins
    if found is None or error:
        await logins.refused(request, services, token.strip())
        return page(request, "login.html", status=401, next=local_path(next), error=error)
    await logins.accepted(request, services, found)
    if local_path(next) == "/" and principal_of(found).only_own:
        next = "/tasks"  # a submitter sees its own tasks, and no more
    sessions(request).end(request.cookies.get(COOKIE))
    response = RedirectResponse(root_of(request) + local_path(next), 303)
    response.set_cookie(
        COOKIE,
        sessions(request).begin(token.strip()),
        max_age=LIFETIME_SECONDS,
        path=root_of(request) or "/",
        httponly=True,
        samesite="strict",
        secure=is_secure(request),
    )
    return response


@router.post("/logout")
async def logout(request: Request, principal: Anybody) -> Response:
    sessions(request).end(request.cookies.get(COOKIE))
    response = RedirectResponse(root_of(request) + "/login", 303)
    response.delete_cookie(COOKIE, path=root_of(request) or "/")
    return response

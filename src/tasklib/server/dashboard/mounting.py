"""The dashboard put into the server: its routes, its sessions, its error pages."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tasklib.server.auth import is_for_programs
from tasklib.server.dashboard import (
    approvals,
    assets,
    dead_letters,
    explore,
    failures,
    flows,
    jump,
    limits,
    live,
    login,
    overview,
    queues,
    replays,
    schedule,
    schedule_edit,
    schedules,
    searches,
    settings,
    signals,
    subjects,
    task,
    task_edit,
    task_new,
    tasks,
    workers,
)
from tasklib.server.dashboard.screens import Unconfirmed
from tasklib.server.dashboard.shell import page, path_of, root_of
from tasklib.server.problems import REQUEST_ID, Problem

ROUTERS: list[APIRouter] = [
    assets.router,
    login.router,
    live.router,
    jump.router,
    overview.router,
    explore.router,
    queues.router,
    subjects.router,
    limits.router,
    workers.router,
    flows.router,
    approvals.router,
    schedules.router,
    schedule.router,
    schedule_edit.router,
    settings.router,
    searches.router,
    task_new.router,
    tasks.router,
    task.router,
    signals.router,
    task_edit.router,
    dead_letters.router,
    failures.router,
    replays.router,
]


def mount(app: FastAPI) -> None:
    """Add every screen."""
    for router in ROUTERS:
        app.router.routes.extend(router.routes)
    app.state.screens = frozenset(getattr(route, "path", "") for route in app.router.routes)
    app.state.show_problem = show_problem
    app.add_exception_handler(Unconfirmed, ask)


def ask(request: Request, unconfirmed: Exception) -> Response:
    """Ask the question of a form that came without the answer."""
    assert isinstance(unconfirmed, Unconfirmed)
    return page(
        request,
        "confirm.html",
        question=unconfirmed.question,
        yes=unconfirmed.yes,
        is_danger=unconfirmed.is_danger,
        fields=unconfirmed.fields,
        back=unconfirmed.back,
    )


def show_problem(request: Request, problem: Problem) -> Response | None:
    """An error for a browser: a redirect to the login, or an error page."""
    if is_for_programs(path_of(request)) or "text/html" not in request.headers.get("accept", ""):
        return None
    if problem.status == 401 and request.method == "GET" and "hx-request" not in request.headers:
        if (elsewhere := request.app.state.login_url) is not None:
            return RedirectResponse(elsewhere, 303)
        here = path_of(request) + (f"?{request.url.query}" if request.url.query else "")
        onward = "" if here == "/" else f"?next={quote(here, safe='')}"
        return RedirectResponse(f"{root_of(request)}/login{onward}", 303)
    response = page(
        request,
        "error.html",
        status=problem.status,
        error_status=problem.status,
        error_title=problem.title,
        detail=problem.detail,
        request_id=request.scope.get(REQUEST_ID),
    )
    for name, value in problem.headers.items():
        response.headers[name] = value
    return response

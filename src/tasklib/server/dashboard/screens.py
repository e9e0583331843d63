"""What every screen's module begins with: its router, who may see it, and proof that a form is our own."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from starlette.datastructures import FormData

from tasklib.errors import TaskNotFound
from tasklib.models import Task
from tasklib.server.access import Principal, Role, allow, client_of, services
from tasklib.server.dashboard.refreshes import ScreenRoute
from tasklib.server.dashboard.shell import local_path, root_of, sessions
from tasklib.server.problems import Problem
from tasklib.server.services import Services
from tasklib.server.sessions import COOKIE

Viewer = Annotated[Principal, Depends(allow(Role.VIEWER))]
Reader = Annotated[Principal, Depends(allow(Role.VIEWER, Role.SUBMITTER))]
"""Principals that may see tasks: a submitter its own."""
Approver = Annotated[Principal, Depends(allow(Role.APPROVER))]
Submitter = Annotated[Principal, Depends(allow(Role.SUBMITTER))]
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
    form = await request.form()
    given = request.headers.get("x-csrf-token") or form.get("csrf")
    if not sessions(request).is_csrf(request.cookies.get(COOKIE), given):
        raise Problem(403, "form_outdated", "This form is out of date", "Go back, load the page again, and try again.")
    _require_confirmation(request, form)


class Unconfirmed(Exception):
    """A form that asks a question came without the answer: the page `confirm.html` asks it."""

    def __init__(self, question: str, yes: str, is_danger: bool, fields: list[tuple[str, str]], back: str) -> None:
        super().__init__(question)
        self.question = question
        self.yes = yes
        self.is_danger = is_danger
        self.fields = fields
        self.back = back


def _require_confirmation(request: Request, form: FormData) -> None:
    """The script asks in a dialog and adds `confirmed`; without it the server asks."""
    fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    values = dict(fields)
    suffix = "" if "ask" in values else f"_{values.get('action')}"
    question = values.get(f"ask{suffix}")
    if question is None or values.get("confirmed") == "yes":
        return
    yes, is_danger = values.get(f"yes{suffix}", "Yes"), f"danger{suffix}" in values
    raise Unconfirmed(question, yes, is_danger, fields, _page_before(request))


def _page_before(request: Request) -> str:
    """The page that the form was on."""
    came_from = urlsplit(request.headers.get("referer", ""))
    path = came_from.path + (f"?{came_from.query}" if came_from.query else "")
    return local_path(path.removeprefix(root_of(request)))


def screen_router() -> APIRouter:
    """A router for screens. Its forms are checked to be genuine, all of them, and refreshes are shared."""
    return APIRouter(dependencies=[Depends(genuine)], include_in_schema=False, route_class=ScreenRoute)


async def found_task(principal: Principal, services: Services, task_id: UUID) -> Task:
    """The task that a screen is about. TaskNotFound if there is none, or the principal may not know of it."""
    found: Task | None = await client_of(principal, services).get_task(task_id)
    if found is None:
        raise TaskNotFound.with_id(task_id)
    return found


def _is_same_site(request: Request) -> bool:
    """What the browser says. Sec-Fetch-Site first: a proxy that renames the host doesn't change it."""
    if site := request.headers.get("sec-fetch-site"):
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")

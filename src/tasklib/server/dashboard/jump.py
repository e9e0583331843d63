"""Jumping to any place: by a task's id, a screen, a queue, a name, a worker or a schedule. Ctrl-K in the browser.

`/jump` is a page of its own, so that it works without script; the script asks it for JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Query, Request
from starlette.responses import RedirectResponse, Response

from tasklib.client.search_terms import EXAMPLES, MAX_LENGTH, quoted
from tasklib.client.suggesting import Suggestion
from tasklib.server.access import PRINCIPAL, UNAUTHENTICATED, Principal, Role, client_of
from tasklib.server.dashboard.screens import Reader, Serving, screen_router
from tasklib.server.dashboard.shell import nav, page, root_of
from tasklib.server.services import Services
from tasklib.server.task_response import shown_searches

router = screen_router()

_END_OF_AN_ID = re.compile(r"…?([0-9a-f]{6,12})")
_KINDS = ("name", "queue", "worker", "schedule")
_EACH = 4


@dataclass(frozen=True, slots=True)
class Destination:
    """Somewhere to go."""

    kind: str
    title: str
    href: str
    note: str = ""


@router.get("/jump")
async def jump(
    request: Request,
    principal: Reader,
    services: Serving,
    q: Annotated[str, Query(max_length=MAX_LENGTH)] = "",
    format: Annotated[str, Query(pattern="^(html|json)$")] = "html",
) -> Response:
    q = q.strip()
    if format == "html" and (found := _id(q)) is not None:
        return RedirectResponse(f"{root_of(request)}/tasks/{found}", 303)
    places = [*_screens(request, q), *await _places(principal, services, q)]
    if format == "json":
        told = [{**asdict(place), "href": root_of(request) + place.href} for place in places]
        return Response(json.dumps(told), media_type="application/json", headers={"Cache-Control": "no-store"})
    return page(request, "jump.html", q=q, places=places)


def _screens(request: Request, q: str) -> Iterator[Destination]:
    for item in nav(request):
        if q.lower() in item.title.lower():
            yield Destination("screen", item.title, item.path, f"g {item.key}")
    principal: Principal = request.scope.get(PRINCIPAL, UNAUTHENTICATED)
    if q.lower() in "new task" and principal.may(Role.SUBMITTER):
        yield Destination("screen", "New task", "/tasks/new")


async def _places(principal: Principal, services: Services, q: str) -> list[Destination]:
    if not q:
        return []
    if (task := _id(q)) is not None:
        return [Destination("task", str(task), f"/tasks/{task}")]
    if match := _END_OF_AN_ID.fullmatch(q.lower()):
        return [Destination("task", f"tasks whose id ends with {match[1]}", _search(f"id:{match[1]}"))]
    if q.partition(":")[0].partition(".")[0].lower() in EXAMPLES and ":" in q:
        return [Destination("search", q, _search(q))]
    client = client_of(principal, services)
    found = await _saved(principal, services, q)
    for kind in _KINDS:
        suggested: Sequence[Suggestion] = await client.suggest(f"{kind}:{quoted(q)}")
        found += [_place(kind, s) for s in suggested[:_EACH]]
    return [*found, Destination("search", f"tasks with {q} in their name or id", _search(quoted(q)))]


async def _saved(principal: Principal, services: Services, q: str) -> list[Destination]:
    if not principal.may(Role.VIEWER):
        return []
    saved = shown_searches(await client_of(principal, services).saved_searches(), services)
    return [Destination("saved", s.name, _search(s.search), s.search) for s in saved if q.lower() in s.name.lower()]


def _place(kind: str, suggestion: Suggestion) -> Destination:
    note = f"{suggestion.count:,} of the newest {suggestion.of:,} tasks" if suggestion.count and suggestion.of else ""
    return Destination(kind, suggestion.term.partition(":")[2].strip('"'), _search(suggestion.term), note)


def _search(q: str) -> str:
    return f"/tasks?{urlencode({'q': q})}"


def _id(text: str) -> UUID | None:
    try:
        return UUID(text) if len(text) >= 32 else None
    except ValueError:
        return None

"""The frame around every screen: `page()` renders one, `done()` goes back to one after an action.

@router.get("/queues")
async def queues(request: Request, principal: Viewer) -> Response:
    return page(request, "queues.html", queues=...)
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tasklib.server.access import PRINCIPAL, UNAUTHENTICATED, Principal
from tasklib.server.dashboard import assets
from tasklib.server.dashboard.filters import FILTERS
from tasklib.server.dashboard.refreshes import CSRF_MARK, is_refresh
from tasklib.server.dashboard.troubles import known_trouble
from tasklib.server.services import version
from tasklib.server.sessions import COOKIE, Sessions
from tasklib.server.settings import ServerSettings
from tasklib.sharding.missing import missing_now
from tasklib.store.tokens import Role

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_FLASH = "tasklib_flash"
_MOST_FLASH = 1000

templates = Environment(
    loader=PackageLoader("tasklib.server.dashboard", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.filters.update(FILTERS)


@dataclass(frozen=True, slots=True)
class Screen:
    """A place in the navigation; shown once the server has it, to those who may see it."""

    title: str
    path: str
    icon: str
    key: str
    """The letter after `g` that leads there."""
    roles: tuple[Role, ...] = (Role.VIEWER,)


_READERS = (Role.VIEWER, Role.SUBMITTER)
SCREENS = (
    Screen("Overview", "/", "overview", "o"),
    Screen("Tasks", "/tasks", "tasks", "t", _READERS),
    Screen("Charts", "/charts", "charts", "h"),
    Screen("Queues", "/queues", "queues", "q"),
    Screen("Limits", "/limits", "limits", "l"),
    Screen("Workers", "/workers", "workers", "w"),
    Screen("Failures", "/failures", "alert", "e", _READERS),
    Screen("Dead letters", "/dead-letters", "dead_letters", "d", _READERS),
    Screen("Flows", "/flows", "flows", "f", _READERS),
    Screen("Approvals", "/approvals", "approvals", "p", _READERS),
    Screen("Schedules", "/schedules", "schedules", "c"),
    Screen("Settings", "/settings", "settings", "s", (Role.ADMIN,)),
    Screen("Tokens", "/tokens", "tokens", "k", (Role.ADMIN,)),
    Screen("Audit", "/audit", "audit", "a", (Role.ADMIN,)),
)


@dataclass(frozen=True, slots=True)
class NavItem:
    """A screen as the page shows it."""

    title: str
    path: str
    icon: str
    key: str
    is_here: bool


@dataclass(frozen=True, slots=True)
class Flash:
    """What an action says on the next page. `kind`: good, bad, warn, info."""

    kind: str
    text: str


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
    """A screen in the shell. Beside its own context every template has that of `_frame`."""
    refresh = is_refresh(request) and status == 200
    frame = _frame(request, refresh)
    had_flashes = bool(frame["flashes"])
    if missing := missing_now():
        frame["flashes"] = [*frame["flashes"], Flash("warn", _without(missing))]
    text = templates.get_template(template).render({**frame, **context})
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
    response = HTMLResponse(text, status, headers)
    if had_flashes:
        response.delete_cookie(_FLASH, path=root_of(request) or "/")
    return response


Kind = Literal["good", "bad", "warn", "info"]


def done(request: Request, path: str, text: str, kind: Kind = "good") -> Response:
    """Back to a screen after an action, with a word about what became of it."""
    response = RedirectResponse(root_of(request) + path, 303)
    said = base64.urlsafe_b64encode(json.dumps([kind, text[:_MOST_FLASH]]).encode()).decode()
    response.set_cookie(
        _FLASH,
        f"{said}.{sessions(request).sign(said)}",
        max_age=60,
        path=root_of(request) or "/",
        httponly=True,
        samesite="strict",
        secure=is_secure(request),
    )
    return response


def _without(missing: Mapping[int, str]) -> str:
    numbers = ", ".join(map(str, sorted(missing)))
    if len(missing) == 1:
        return f"Shard {numbers} can't be reached: what is on it is missing here."
    return f"Shards {numbers} can't be reached: what is on them is missing here."


def sessions(request: Request) -> Sessions:
    found: Sessions = request.app.state.sessions
    return found


def is_secure(request: Request) -> bool:
    """True if the browser uses HTTPS, directly or through a configured proxy."""
    settings: ServerSettings = request.app.state.services.settings
    return request.url.scheme == "https" or settings.is_public_https


def local_path(path: str | None, otherwise: str = "/") -> str:
    """A path of this server, from outside: anything that could lead elsewhere is not followed."""
    if not path or not path.startswith("/") or path[1:2] in ("/", "\\") or not path.isprintable() or "\\" in path:
        return otherwise
    return path


def _frame(request: Request, refresh: bool) -> dict[str, Any]:
    found: Principal = request.scope.get(PRINCIPAL, UNAUTHENTICATED)
    principal = None if found is UNAUTHENTICATED else found
    root = root_of(request)
    return {
        "request": request,
        "principal": principal,
        "may_view": principal is not None and principal.may(Role.VIEWER),
        "may_operate": principal is not None and principal.may(Role.OPERATOR),
        "may_submit": principal is not None and principal.may(Role.SUBMITTER),
        "may_approve": principal is not None and principal.may(Role.APPROVER),
        "may_administer": principal is not None and principal.may(Role.ADMIN),
        "role_names": ", ".join(sorted(role.value for role in principal.roles)) if principal else "",
        "nav": nav(request),
        "trouble": known_trouble(request, principal),
        "icons": {"warning": "icon-warning.svg", "critical": "icon-critical.svg"},
        "is_refresh": refresh,
        "csrf_token": CSRF_MARK if refresh else sessions(request).csrf(request.cookies.get(COOKIE)),
        "flashes": [] if refresh else _flashes(request),
        "version": version(),
        "now": datetime.now(UTC),
        "here": root + path_of(request) + (f"?{request.url.query}" if request.url.query else ""),
        "url": lambda path: root + path,
        "at": lambda place, value: root + place_of(place, value),
        "asset": lambda name: root + assets.path_of(name),
        "with_query": lambda changes: _with_query(request, changes),
    }


def nav(request: Request) -> list[NavItem]:
    """The screens that the one who asks may see."""
    principal: Principal = request.scope.get(PRINCIPAL, UNAUTHENTICATED)
    if principal is UNAUTHENTICATED:
        return []
    served = _served(request)
    path = path_of(request)
    return [
        NavItem(s.title, s.path, s.icon, s.key, path == s.path or (s.path != "/" and path.startswith(s.path + "/")))
        for s in SCREENS
        if s.path in served and principal.may(*s.roles)
    ]


def _served(request: Request) -> frozenset[str]:
    found: frozenset[str] = request.app.state.screens
    return found


def _with_query(request: Request, changes: Mapping[str, object]) -> str:
    """This page with some of its query changed; None takes one away."""
    query = dict(parse_qsl(request.url.query))
    query.update({name: str(value) for name, value in changes.items() if value is not None})
    kept = {name: value for name, value in query.items() if changes.get(name, "") is not None}
    return "?" + urlencode(kept)


def _flashes(request: Request) -> list[Flash]:
    said, _, signature = request.cookies.get(_FLASH, "").partition(".")
    if not said or not hmac.compare_digest(sessions(request).sign(said).encode(), signature.encode()):
        return []
    try:
        kind, text = json.loads(base64.urlsafe_b64decode(said))
    except (ValueError, binascii.Error):
        return []
    return [Flash(kind, text)]


def place_of(place: str, value: str) -> str:
    """The page of one queue, name or worker: `/queues/mail`."""
    # A browser takes a dot or two for a step of the path, however they are written.
    return place if value in (".", "..", "") else f"{place}/{quote(value, safe='')}"


def root_of(request: Request) -> str:
    """Where a proxy has put us, without a slash at the end."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def path_of(request: Request) -> str:
    """The path of this page, from our root on."""
    return request.url.path.removeprefix(root_of(request)) or "/"

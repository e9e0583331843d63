"""Authentication and authorization of a request, before a byte of its body is read."""

from __future__ import annotations

import math
import re
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, cookie_parser
from starlette.routing import BaseRoute, Match, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from tasklib.environment import is_loopback
from tasklib.server.access import (
    ANONYMOUS,
    PRINCIPAL,
    SCRAPER,
    UNAUTHENTICATED,
    HostLogin,
    Principal,
    checked,
    principal_of,
    roles_of,
)
from tasklib.server.caps import within_limits
from tasklib.server.problems import Problem
from tasklib.server.rates import RateLimit
from tasklib.server.services import Services
from tasklib.server.sessions import COOKIE, Sessions
from tasklib.server.settings import ServerSettings
from tasklib.server.token_cache import token_ended

API_PATHS = ("/api/", "/internal/", "/health/", "/metrics", "/openapi.json")
"""Paths for programs. Everything else is the dashboard's, and takes its cookie."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/\s]+)(?::[0-9]*)?")
_SAFE = ("GET", "HEAD", "OPTIONS")
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_PROXY_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")


class Auth:
    """ASGI middleware. Refuses by default: a route that declares no role is closed."""

    def __init__(self, app: ASGIApp, router: Router, settings: ServerSettings, login: HostLogin | None = None) -> None:
        self.app = app
        self._login = login
        self._router = router
        self._settings = settings
        self._by_beginning: dict[str, list[BaseRoute]] | None = None
        rate = settings.rate_limit_per_second
        self._rate = None if rate is None else RateLimit(rate, rate)
        self._is_warned_of_proxies = settings.is_public_https

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # there are none here
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] == "http":
            await self._admit(scope)
        principal: Principal = scope.get(PRINCIPAL, UNAUTHENTICATED)
        if principal is UNAUTHENTICATED:
            await self.app(scope, receive, send)
        else:
            caps = scope["app"].state.services.caps
            await within_limits(self.app, scope, receive, send, caps, principal)

    async def _admit(self, scope: Scope) -> None:
        """Put the Principal into the scope, or raise a Problem."""
        headers = Headers(scope=scope)
        if not path_in(scope).startswith("/health/"):  # probes name no host
            self._check_host(headers)
        self._warn_of_a_proxy(scope, headers)
        services: Services = scope["app"].state.services
        route = _route(self._candidates(path_in(scope)), scope)
        if route is None:
            return  # 404, with or without a token
        roles = roles_of(route)
        if roles is None:
            raise Problem(403, "route_closed", "This route is not accessible", "This route has no access rule.")
        if not roles and is_for_programs(path_in(scope)):
            return  # whether the server lives doesn't hang on the database
        principal = await self._principal(services, scope, headers)
        scope[PRINCIPAL] = principal
        if roles:
            checked(principal, roles)
            self._check_rate(principal)

    def _candidates(self, path: str) -> list[BaseRoute]:
        """The routes that begin like the path does: looking at all of them would take longer than the rest here."""
        if self._by_beginning is None:
            beginnings = {_beginning(getattr(route, "path", "/{any}")) for route in self._router.routes}
            self._by_beginning = {b: [r for r in self._router.routes if _may_begin(r, b)] for b in beginnings | {""}}
        return self._by_beginning.get(_beginning(path)) or self._by_beginning[""]

    async def _principal(self, services: Services, scope: Scope, headers: Headers) -> Principal:
        text = _token(headers)
        if text is not None:
            token = await services.tokens.find(text)
            if token is None:
                raise token_ended()
            return principal_of(token)
        if self._login is not None:
            _check_origin(scope, headers)
            return await self._login(HTTPConnection(scope)) or UNAUTHENTICATED
        # A session that has ended counts as no session, so that the login page can be opened.
        if (session := _session(scope, headers)) and (token := await services.tokens.find(session)):
            return principal_of(token)
        if await services.tokens.is_open():
            _check_local(scope, headers, self._settings)
            return ANONYMOUS
        if self._settings.metrics_without_token and path_in(scope) == "/metrics":
            return SCRAPER
        return UNAUTHENTICATED

    def _check_host(self, headers: Headers) -> None:
        allowed = self._settings.allowed_hosts
        if allowed and _host_of(headers.get("host", "")) not in allowed:
            raise Problem(
                421,
                "host_not_allowed",
                "This host is not served",
                "The Host header is not one that this server accepts.",
            )

    def _warn_of_a_proxy(self, scope: Scope, headers: Headers) -> None:
        """Once: behind a TLS proxy that is not configured, cookies would lack `Secure`."""
        if self._is_warned_of_proxies or scope["scheme"] == "https":
            return
        if headers.get("x-forwarded-proto", "").lower() == "https":
            self._is_warned_of_proxies = True
            structlog.get_logger("tasklib.server").warning(
                "a proxy reports HTTPS, but is not trusted",
                hint="Set --public-url https://NAME, or --trusted-proxy ADDRESS: else cookies lack Secure, and there "
                "is no Strict-Transport-Security.",
                client=scope["client"][0] if scope.get("client") else None,
            )

    def _check_rate(self, principal: Principal) -> None:
        if self._rate is not None and (seconds := self._rate.take(principal.token_id)) is not None:
            most = self._settings.rate_limit_per_second
            raise Problem(
                429,
                "rate_limited",
                "Too many requests",
                f"A token may make {most:g} requests a second; try again in {seconds:.1f} s.",
                headers={"Retry-After": str(math.ceil(seconds))},
            )


def path_in(scope: Scope) -> str:
    """The path from our root on: another application may have mounted us."""
    path: str = scope["path"]
    if (root := scope.get("root_path")) and path.startswith(f"{root}/"):
        return path[len(root) :]
    return path


def is_for_programs(path: str) -> bool:
    """False for the dashboard's pages."""
    return path.startswith(API_PATHS)


def _beginning(path: str) -> str:
    """What a path has before its second slash."""
    return path.split("/", 2)[1] if path.startswith("/") else ""


def _may_begin(route: BaseRoute, beginning: str) -> bool:
    own = _beginning(getattr(route, "path", "/{any}"))
    return own == beginning or "{" in own


def _route(routes: list[BaseRoute], scope: Scope) -> BaseRoute | None:
    """The route that will answer. 405 if there are only others for this path: Starlette would name the first."""
    methods: set[str] = set()
    for route in routes:
        match, _ = route.matches(scope)
        if match is Match.FULL:
            return route
        if match is Match.PARTIAL:
            methods |= getattr(route, "methods", None) or set()
    if methods:
        allowed = ", ".join(sorted(methods))
        detail = f"This path allows {allowed}."
        raise Problem(405, "method_not_allowed", "Method Not Allowed", detail, headers={"Allow": allowed})
    return None


def _token(headers: Headers) -> str | None:
    """The text of the token that came with the request, if any."""
    if authorization := headers.get("authorization"):
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return text.strip()
        raise Problem(
            401, "token_missing", "A token is needed", "Only this form is supported: Authorization: Bearer ..."
        )
    return None


def _session(scope: Scope, headers: Headers) -> str | None:
    """The token of a session: only for the dashboard's pages."""
    if is_for_programs(path_in(scope)) or not (cookies := headers.get("cookie")):
        return None
    sessions: Sessions = scope["app"].state.sessions
    session = sessions.find(cookie_parser(cookies).get(COOKIE))
    return session.token if session else None


def _check_local(scope: Scope, headers: Headers, settings: ServerSettings) -> None:
    """Open mode: only programs on this machine that mean this server. No proxy that says so, no page of another site,
    and no other name: a page can let its own name lead here (DNS rebinding)."""
    client = scope.get("client")
    if client is None or not is_loopback(client[0]) or any(name in headers for name in _PROXY_HEADERS):
        raise Problem(
            403,
            "local_only",
            "Only for this machine",
            "This server requires no token (--no-auth), so it serves this machine only. To serve others, create one: "
            "tasklib token create",
        )
    if _host_of(headers.get("host", "")) not in (*_LOCAL_HOSTS, *settings.allowed_hosts):
        detail = "With --no-auth only localhost and the names given by --allowed-host are served."
        raise Problem(421, "host_not_allowed", "This host is not served", detail)
    _check_origin(scope, headers)


def _check_origin(scope: Scope, headers: Headers) -> None:
    """No page of another site makes a change with what the browser sends along."""
    origin = headers.get("origin")
    if origin and scope["method"] not in _SAFE and urlsplit(origin).netloc != headers.get("host"):
        raise Problem(403, "origin_not_allowed", "Not from another site", "A page of another site made this request.")


def _host_of(value: str) -> str:
    """A Host header without its port; nothing if it has another form."""
    match = _HOST.fullmatch(value)
    return match[1].lower() if match else ""

"""The dashboard and the HTTP API inside a Django project, for people who are logged in there.

# mysite/asgi.py
application = with_dashboard(get_asgi_application())     # at /tasklib/

Who may do what is a matter of Django's permissions, as in the admin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest
from django.shortcuts import resolve_url
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from tasklib.config import is_actor
from tasklib.django import settings as our_settings
from tasklib.server.access import Principal, with_included
from tasklib.server.app import create_app
from tasklib.server.settings import ServerSettings
from tasklib.store.tokens import Role

__all__ = ["role_of", "with_dashboard"]

_OPERATOR = ("tasklib.view_taskrecord", "tasklib.cancel_task", "tasklib.replay_task")


def role_of(user: Any) -> str | None:
    """What a user of Django may do in the dashboard, by the permissions that the admin asks for."""
    if not (user.is_active and user.is_authenticated):
        return None
    if user.is_superuser:
        return Role.ADMIN
    if user.has_perms(_OPERATOR):
        return Role.OPERATOR
    return Role.VIEWER if user.has_perm(_OPERATOR[0]) else None


def with_dashboard(
    application: Any,
    path: str = "/tasklib",
    *,
    role: Callable[[Any], str | None] = role_of,
    server_settings: ServerSettings | None = None,
) -> ASGIApp:
    """Django's ASGI application with TaskLib's dashboard and API at `path`, behind Django's login.

    `role` is given a user and returns viewer, operator, admin, or None for people who may not look. Browsers of people
    who are not logged in are sent to LOGIN_URL. API tokens work at the same address.
    """
    return _Mounted(application, "/" + path.strip("/"), role, server_settings)


class _Mounted:
    def __init__(
        self, application: Any, path: str, role: Callable[[Any], str | None], given: ServerSettings | None
    ) -> None:
        self._django, self._path, self._role, self._given = application, path, role, given
        self._server: Any = None
        self._opening = asyncio.Lock()
        self._open = AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":  # which Django's application doesn't know
            await self._live(receive, send)
        elif scope["path"] == self._path or scope["path"].startswith(f"{self._path}/"):
            server = await self._opened()
            root = scope.get("root_path", "") + self._path
            await server({**scope, "root_path": root, "app_root_path": scope.get("root_path", "")}, receive, send)
        else:
            await self._django(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._open.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})

    async def _opened(self) -> Any:
        """The server, opened with the first request: the tables may be made while Django runs."""
        async with self._opening:
            if self._server is None:
                server = await sync_to_async(self._made)()
                await self._open.enter_async_context(server.router.lifespan_context(server))
                self._server = server
        return self._server

    def _made(self) -> Any:
        given = self._given or ServerSettings.from_env(lead=False)
        login_url = f"{resolve_url(settings.LOGIN_URL)}?next={self._path}/"
        return create_app(our_settings.config(), given, login=self._who, login_url=login_url)

    async def _who(self, connection: HTTPConnection) -> Principal | None:
        key = connection.cookies.get(settings.SESSION_COOKIE_NAME)
        return await sync_to_async(self._principal)(key) if key else None

    def _principal(self, session_key: str) -> Principal | None:
        request = HttpRequest()
        request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
        user = get_user(request)
        if not user.is_authenticated:
            return None
        name, role = user.get_username(), self._role(user)
        # With no role they are told so, instead of being sent to a login that they have behind them.
        return Principal(name if is_actor(name) else f"user {user.pk}", with_included([role] if role else []))

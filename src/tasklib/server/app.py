"""The application put together: routes, middlewares, errors.

app = create_app(Config("postgresql://app@db/app"))       # for any ASGI server
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

from fastapi import APIRouter, FastAPI

from tasklib.config import Config
from tasklib.server import problems
from tasklib.server.access import HostLogin
from tasklib.server.auth import Auth
from tasklib.server.bodies import Limits
from tasklib.server.logins import Logins
from tasklib.server.missing_shards import MissingShards
from tasklib.server.request_log import RequestLog
from tasklib.server.routes import (
    approvals,
    audit,
    bounds,
    breakers,
    dead_letters,
    failures,
    flows,
    health,
    internal,
    limits,
    metrics,
    openapi,
    pauses,
    places,
    queue,
    replays,
    schedules,
    searches,
    tasks,
    tokens,
    waiting,
    workers,
)
from tasklib.server.routes import settings as settings_routes
from tasklib.server.services import Services, version
from tasklib.server.sessions import Sessions
from tasklib.server.settings import ServerSettings

ROUTERS: list[APIRouter] = [
    health.router,
    metrics.router,
    openapi.router,
    tasks.router,
    waiting.router,
    queue.router,
    dead_letters.router,
    failures.router,
    replays.router,
    workers.router,
    schedules.router,
    flows.router,
    approvals.router,
    pauses.router,
    limits.router,
    bounds.router,
    breakers.router,
    searches.router,
    settings_routes.router,
    tokens.router,
    audit.router,
    internal.router,
    places.router,
]


def create_app(
    config: Config,
    settings: ServerSettings | None = None,
    *,
    login: HostLogin | None = None,
    login_url: str | None = None,
) -> FastAPI:
    """The ASGI application. It connects when it starts, and refuses to start where that would not be safe.

    Mounted in another application, `login` says who is logged in there, and `login_url` is its login page.
    """
    settings = settings or ServerSettings()
    for module in settings.modules:
        import_module(module)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        opened = app.state.services = await Services.open(config, settings, has_login=login is not None)
        if settings.lead:
            opened.lead(config)
        try:
            yield
        finally:
            await opened.close()

    app = FastAPI(
        title="TaskLib", version=version(), lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None
    )
    app.router.redirect_slashes = False  # a redirect would repeat the Host header
    for router in ROUTERS:
        # Not include_router: it may wrap them, and the gate wants to see each.
        app.router.routes.extend(router.routes)
    app.state.sessions = Sessions(per_token=settings.sessions_per_token)
    app.state.logins = Logins(settings)
    app.state.login_url = login_url
    if settings.dashboard:
        from tasklib.server.dashboard.mounting import mount

        mount(app)
    problems.handle_in(app)
    # The last one added is the outermost.
    if config.shards:
        app.add_middleware(MissingShards)
    app.add_middleware(Limits, settings=settings)
    app.add_middleware(Auth, router=app.router, settings=settings, login=login)
    app.add_middleware(RequestLog, settings=settings)
    return app

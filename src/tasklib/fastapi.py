"""TaskLib in a FastAPI or Starlette application.

tasks = TaskLib("postgresql://app@db/app")
app = FastAPI(lifespan=tasks.lifespan)
app.mount("/tasklib", tasks.server(login=who))           # the API and the dashboard, behind your own login

@app.post("/orders")
async def place(client: TaskClient, session: Annotated[AsyncSession, committed(sessions)]) -> UUID:
    return await send_receipt.on(session).submit(order=1)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from starlette.requests import HTTPConnection

from tasklib.client.async_clients import AsyncClient
from tasklib.client.default import close, default_async_client, given_to_init, init
from tasklib.config import Config, is_actor
from tasklib.errors import ConfigError
from tasklib.server.access import Principal, with_included
from tasklib.server.app import create_app
from tasklib.server.settings import ServerSettings
from tasklib.store.tokens import Role

__all__ = ["DashboardUser", "TaskClient", "TaskLib", "committed"]


@dataclass(frozen=True, slots=True)
class DashboardUser:
    """A user of your application, and the user's role: viewer, operator or admin."""

    name: str
    """For the audit."""
    role: str = "viewer"

    def __post_init__(self) -> None:
        if self.role not in set(Role):
            raise ConfigError(f"the role of {self.name!r} must be one of {', '.join(Role)}, not {self.role!r}.")
        if not is_actor(self.name):
            raise ConfigError(f"the name of a user must be 1 to 200 printable characters, not {self.name!r}.")


class TaskLib:
    """Opens and closes TaskLib with an application, and serves its API and dashboard there."""

    def __init__(self, config: Config | str | None = None) -> None:
        """A URL, a Config, or nothing: then that of `tasklib.init()`, such as a test's, else the environment."""
        self._given = Config.from_env(database_url=config) if isinstance(config, str) else config
        self._servers: list[FastAPI] = []

    @property
    def config(self) -> Config:
        """What the application uses. Without a URL or a Config it is looked up when the application starts."""
        return self._given or given_to_init() or Config.from_env()

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[Mapping[str, Any]]:
        """For `FastAPI(lifespan=...)`; inside a lifespan of your own: `async with tasks.lifespan(app): yield`."""
        is_own = (config := self.config) is not given_to_init()
        if is_own:
            init(config)
        try:
            async with AsyncExitStack() as stack:
                for server in self._servers:  # Starlette doesn't start what is mounted
                    await stack.enter_async_context(server.router.lifespan_context(server))
                yield {}
        finally:
            if is_own:
                close()

    def server(
        self,
        login: Callable[[HTTPConnection], Awaitable[DashboardUser | None]],
        *,
        login_url: str | None = None,
        settings: ServerSettings | None = None,
    ) -> FastAPI:
        """The HTTP API and the dashboard, to be mounted: `app.mount("/tasklib", tasks.server(login=who))`.

        `login` is given each request without an API token, and returns who sent it, or None. Browsers of people who
        are not logged in are sent to `login_url`.
        """

        async def principal(request: HTTPConnection) -> Principal | None:
            user = await login(request)
            return None if user is None else Principal(user.name, with_included([user.role]))

        given = settings or ServerSettings.from_env(lead=False)
        made = create_app(self.config, given, login=principal, login_url=login_url)
        self._servers.append(made)
        return made


async def _client() -> AsyncClient:
    return default_async_client()


TaskClient = Annotated[AsyncClient, Depends(_client)]
"""A parameter of this type is the client for the application's event loop."""


def committed(sessions: Callable[[], Any]) -> Any:
    """A session of SQLAlchemy or SQLModel in a transaction that is committed before the answer is sent.

    Session = Annotated[AsyncSession, committed(async_sessionmaker(engine))]

    If the commit fails, the client is not told 201. An exception in the endpoint rolls the transaction back, and
    with it the tasks that were submitted by `.on(session)`. `sessions` is a sessionmaker, or an async_sessionmaker.
    """
    if hasattr(sessions(), "sync_session"):  # not opened yet

        async def begun_async() -> AsyncIterator[Any]:
            async with sessions() as session, session.begin():
                yield session

        return Depends(begun_async, scope="function")

    def begun() -> Iterator[Any]:
        with sessions() as session, session.begin():
            yield session

    return Depends(begun, scope="function")

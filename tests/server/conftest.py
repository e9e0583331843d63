"""A real server: uvicorn in a thread, on a free port, with a database of the test's own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from fastapi import APIRouter

from tasklib import Client, Config
from tasklib.server.serving import ApiServer, make_server
from tasklib.server.settings import ServerSettings
from tasklib.store.tokens import NewToken
from tasklib.testing import databases

PATIENCE = 120.0


class Running(str):
    """The base URL of a running server, with a client to it and the server itself."""

    server: ApiServer
    http: httpx.Client
    thread: threading.Thread

    def stop(self) -> None:
        """End it as SIGTERM would, and wait until it has ended."""
        self.server.should_exit = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "it didn't end"

    @property
    def app(self) -> Any:
        return self.server.config.app


@contextmanager
def running(config: Config, *routers: APIRouter, **settings: Any) -> Iterator[Running]:
    """A server with these settings, and perhaps further routes, until the block ends. Open until the first token.

    It doesn't lead unless told to: tests that look at what a leader does want to be the leader.
    """
    made = make_server(config, ServerSettings(**{"port": 0, "no_auth": True, "lead": False, **settings}))
    for router in routers:
        made.config.app.router.routes.extend(router.routes)  # type: ignore[union-attr]
    listening = socket.create_server((made.config.host, 0))
    port = listening.getsockname()[1]
    failed: list[BaseException] = []

    def serve() -> None:
        try:
            made.run(sockets=[listening])
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        while not made.started and thread.is_alive():
            thread.join(0.01)
        assert made.started, failed
        scheme = "https" if made.config.is_ssl else "http"
        url = Running(f"{scheme}://{made.config.host}:{port}")
        url.server, url.thread = made, thread
        with httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as url.http:
            yield url
    finally:
        made.should_exit = True
        thread.join(PATIENCE)
        listening.close()


@pytest.fixture
def server() -> Iterator[Callable[..., Running]]:
    """`server(config, *routers, **settings)` starts one; it ends with the test."""
    with ExitStack() as stack:
        yield lambda config, *routers, **settings: stack.enter_context(running(config, *routers, **settings))


@pytest.fixture
def new_token(config: Config) -> Callable[..., NewToken]:
    """`new_token(*roles, queues=None, expires_in=None)` creates one, with all about it."""

    def create(*roles: str, queues: list[str] | None = None, expires_in: float | None = None) -> NewToken:
        with Client(config) as client:
            return client.create_token(" ".join(roles), roles=roles, queues=queues, expires_in=expires_in)

    return create


@pytest.fixture
def token(new_token: Callable[..., NewToken]) -> Callable[..., str]:
    """`token(*roles, queues=None)` creates one and gives its text."""
    return lambda *roles, queues=None: new_token(*roles, queues=queues).text


def bearer(text: str) -> dict[str, str]:
    """The header that carries a token."""
    return {"Authorization": f"Bearer {text}"}


@pytest.fixture(scope="module")
def module_api(server_url: str, template_database: str) -> Iterator[Any]:
    """One server with tokens for a module of tests."""
    from tests.server.api import api_on

    with databases.database(server_url, template_database) as url, api_on(url) as made:
        yield made


@pytest.fixture
def api(module_api: Any) -> Iterator[Any]:
    """The module's server, with empty tables after each test."""
    yield module_api
    module_api.clear()


@pytest.fixture
def side() -> Iterator[ThreadPoolExecutor]:
    """For requests that wait while others are made."""
    with ThreadPoolExecutor(4) as pool:
        yield pool

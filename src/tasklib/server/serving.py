"""The server as a process: uvicorn around the application, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import uvicorn
from fastapi import FastAPI

from tasklib.config import Config
from tasklib.errors import ConfigError
from tasklib.server.app import create_app
from tasklib.server.connections import StrictProtocol
from tasklib.server.services import Services
from tasklib.server.settings import ServerSettings

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ApiServer(uvicorn.Server):
    """uvicorn, but long-polling requests are ended before it waits for open requests."""

    on_started: Callable[[str], None] = staticmethod(lambda url: None)
    """Called with the URL once requests can come."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            port = next((s.getsockname()[1] for server in self.servers for s in server.sockets), self.config.port)
            host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
            self.on_started(f"{'https' if self.config.is_ssl else 'http'}://{host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app = self.config.app
        if isinstance(app, FastAPI) and hasattr(app.state, "services"):
            app.state.services.stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, but the signal is not raised again: a server that was stopped has not failed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)


def make_server(config: Config, settings: ServerSettings) -> ApiServer:
    """A server that is ready to run: `make_server(...).run()`."""
    return ApiServer(
        uvicorn.Config(
            create_app(config, settings),
            host=settings.host,
            port=settings.port,
            ssl_certfile=settings.tls_certificate,
            ssl_keyfile=settings.tls_key,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            timeout_graceful_shutdown=round(settings.shutdown_grace_seconds),
            server_header=False,
            access_log=False,
            log_config=None,
            http=partial(StrictProtocol, settings),  # type: ignore[arg-type]  # anything that makes one will do
            ws="none",
            lifespan="on",
        )
    )


async def check(config: Config, settings: ServerSettings) -> bool:
    """Raise what would keep the server from starting; else say whether it will be open to this whole machine."""
    if settings.tls_certificate:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                settings.tls_certificate, settings.tls_key
            )
        except (OSError, ssl.SSLError) as e:
            raise ConfigError(f"the certificate {settings.tls_certificate} and its key can't be used: {e}.") from e
    services = await Services.open(config, settings)
    try:
        return await services.tokens.is_open()
    finally:
        await services.close()

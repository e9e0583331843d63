"""The dashboard beside `tasklib dev`: the server in a thread of its own, for this machine only."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tasklib.cli.report import note
from tasklib.observe.task_logging import configure_task_logging

if TYPE_CHECKING:
    from tasklib.config import Config

HOST, PORT = "127.0.0.1", 8765
_START_SECONDS = 30.0


@contextmanager
def dashboard(config: Config, port: int = PORT) -> Iterator[None]:
    """Serve while the block runs, and print the URL. If it can't serve, `tasklib dev` goes on without it."""
    try:
        from tasklib.server.serving import make_server
        from tasklib.server.settings import ServerSettings
    except ModuleNotFoundError:
        note("For the dashboard: pip install 'tasklib-pg[server]'", "dim")
        yield
        return
    # Only failed requests are logged: the dashboard polls every few seconds.
    configure_task_logging(as_json=None, level=logging.WARNING)
    with _listening(port) as listening:
        chosen = listening.getsockname()[1]
        server = make_server(config, ServerSettings(host=HOST, port=chosen, no_auth=True))
        thread = threading.Thread(target=_serve, args=(server, listening), name="dashboard", daemon=True)
        server.on_started = lambda url: note(f"Dashboard: {url}", "bold")
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join(_START_SECONDS)


def _listening(port: int) -> socket.socket:
    """A socket on this port, or on a free one: two projects may be developed at a time."""
    with suppress(OSError):
        return socket.create_server((HOST, port))
    return socket.create_server((HOST, 0))


def _serve(server: object, listening: socket.socket) -> None:
    from tasklib.server.serving import ApiServer

    assert isinstance(server, ApiServer)
    try:
        server.run(sockets=[listening])
    except (Exception, SystemExit) as e:
        note(f"The dashboard stopped: {e}", "yellow")

"""A way to the database that can fall silent, or be cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tasklib import Config
from tests.client.proxy import _close, _connect


class Way:
    """Forwards to PostgreSQL, unless told otherwise."""

    def __init__(self, config: Config) -> None:
        address: dict[str, Any] = conninfo_to_dict(config.database_url)
        self._server = (address["host"], int(address.get("port") or 5432))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._flows = threading.Event()
        self._flows.set()
        self._refuses = False
        self.refused = 0
        """How many have tried in vain."""
        self._open: set[socket.socket] = set()
        port = self._listening.getsockname()[1]
        here = {**address, "host": "127.0.0.1", "port": port, "sslmode": "disable", "gssencmode": "disable"}
        self.config = config.with_changes(database_url=make_conninfo("", **here))
        """The same database, by this way."""
        threading.Thread(target=self._accept, daemon=True).start()

    def fall_silent(self) -> None:
        """Nothing comes through, and no side closes the connection."""
        self._flows.clear()

    def refuse(self) -> None:
        """All connections are lost, and new ones are hung up on, as while a server restarts."""
        self._refuses = True
        self.cut()

    def speak(self) -> None:
        self._refuses = False
        self._flows.set()

    def cut(self) -> None:
        """All connections are lost; new ones are not accepted for as long as it is silent."""
        for end in list(self._open):
            _close(end)

    def close(self) -> None:
        self._flows.set()
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if self._refuses:
            _close(client)
            self.refused += 1
            return
        server = _connect(*self._server)
        self._open |= {client, server}
        threading.Thread(target=self._forward, args=[server, client], daemon=True).start()
        self._forward(client, server)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                target.sendall(data)
        for end in (source, target):
            self._open.discard(end)
            _close(end)


@contextmanager
def way_to(config: Config) -> Iterator[Way]:
    way = Way(config)
    try:
        yield way
    finally:
        way.close()

"""A TCP proxy that loses the link right after the server has done what it was asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Forwards to a server. `lose_answer_to(marker)` cuts the next connection that sends the marker, once."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._marker: bytes | None = None
        self.port: int = self._listening.getsockname()[1]
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answer_to(self, marker: bytes) -> None:
        self._marker = marker

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = _connect(*self._server)
        cut = threading.Event()
        back = threading.Thread(target=self._answers, args=[server, client, cut], daemon=True)
        back.start()
        with suppress(OSError):
            while data := client.recv(65536):
                if self._marker is not None and self._marker in data:
                    self._marker = None
                    cut.set()
                server.sendall(data)
        _close(server)

    def _answers(self, server: socket.socket, client: socket.socket, cut: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if cut.is_set():  # the server has answered, so it has committed, and the client is not told
                    self.lost += 1
                    break
                client.sendall(data)
        _close(client)
        _close(server)


@contextmanager
def proxy(host: str, port: int) -> Iterator[Proxy]:
    forwarding = Proxy(host, port)
    try:
        yield forwarding
    finally:
        forwarding.close()


def _connect(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{host}/.s.PGSQL.{port}")
    return connection


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()

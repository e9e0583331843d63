"""A PgBouncer of one's own in front of a server: Debian's package, never as root.

with pgbouncer(server_url) as url:
    Config(url, prepared_statements=False)
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tasklib.testing.databases import with_database

PROGRAM = shutil.which("pgbouncer") or next((p for p in ("/usr/sbin/pgbouncer",) if os.path.exists(p)), None)
_PORTS = range(20_000, 32_000)
_READY_SECONDS = 120.0


class Pooler:
    """A running PgBouncer."""

    def __init__(self, directory: Path, server_url: str, settings: dict[str, str], waits_for_login: bool) -> None:
        self._directory = directory
        self._server = conninfo_to_dict(server_url)
        self._settings = settings
        self._waits_for_login = waits_for_login
        self.server_url = server_url
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str | None = None) -> str:
        """The way through the pooler; to the server's own database unless another is named."""
        parts = self._server
        url = f"postgresql://{parts['user']}:{parts.get('password', '')}@127.0.0.1:{self.port}/{parts['dbname']}"
        return with_database(url, database) if database else url

    def start(self) -> None:
        for _ in range(20):
            self.port = random.choice(_PORTS)
            self._write()
            account = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
            command = [PROGRAM or "pgbouncer", "-q", str(self._directory / "pgbouncer.ini")]
            with (self._directory / "log").open("ab") as log:
                self._process = subprocess.Popen(command, stdout=log, stderr=log, **account)  # type: ignore[call-overload]
            if self._answers():
                return
            self.stop()
        raise RuntimeError(f"PgBouncer did not start:\n{(self._directory / 'log').read_text()}")

    def stop(self) -> None:
        """End it at once: clients lose their connections."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(120)
            self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + _READY_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                if self._waits_for_login:
                    psycopg.connect(self.url(), connect_timeout=5).close()
                else:
                    socket.create_connection(("127.0.0.1", self.port)).close()
                return True
            except (psycopg.OperationalError, OSError):
                time.sleep(0.05)
        return False

    def _write(self) -> None:
        parts = self._server
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "scram-sha-256",
            "auth_file": str(self._directory / "users"),
            "auth_user": str(parts["user"]),
            "pool_mode": "transaction",
            "max_client_conn": "1000",
            "default_pool_size": "20",
            **self._settings,
        }
        (self._directory / "users").write_text(f'"{parts["user"]}" "{parts.get("password", "")}"\n')
        lines = ["[databases]", f"* = host={parts['host']} port={parts['port']}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        (self._directory / "pgbouncer.ini").write_text("\n".join(lines) + "\n")


@contextmanager
def pgbouncer(server_url: str, *, waits_for_login: bool = True, **settings: str) -> Iterator[Pooler]:
    """PgBouncer in transaction mode in front of this server; `settings` are those of its configuration.

    It is up when somebody can log in through it, or, in front of a server that is away, when it listens.
    """
    directory = Path(tempfile.mkdtemp(prefix="tasklib-pgbouncer-"))
    directory.chmod(0o755)
    pooler = Pooler(directory, server_url, settings, waits_for_login)
    try:
        pooler.start()
        yield pooler
    finally:
        pooler.stop()
        shutil.rmtree(directory, ignore_errors=True)

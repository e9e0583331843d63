"""A server in a process of its own, to be killed and started again at the same place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from proof.ports import free_port
from tasklib import Config

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


class ServerProcess:
    """`tasklib server`, again and again on the same port."""

    def __init__(self, config: Config, log: Path) -> None:
        self._port = free_port()
        self._config = config
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TASKLIB_")}
        environment |= {
            "TASKLIB_DATABASE_URL": self._config.database_url,
            "TASKLIB_PREPARED_STATEMENTS": str(self._config.prepared_statements),
            "TASKLIB_LISTEN_DATABASE_URL": self._config.listen_database_url or "",
            "PYTHONPATH": str(ROOT / "src"),
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tasklib",
                    "server",
                    "--port",
                    str(self._port),
                    "--quiet",
                    "--no-auth",
                    "--no-dashboard",
                ],
                stdout=log,
                stderr=log,
                env=environment,
            )
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.url}/health/live").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
            assert self._process.poll() is None, self._log.read_text()
        raise AssertionError(f"the server never answered: {self._log.read_text()}")

    def kill(self) -> None:
        """SIGKILL: nothing is finished, and no peer is notified."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE)

"""The `tasklib` command in a process of its own, with or without a terminal, and waiting for what it says."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

SOURCES = Path(__file__).parents[2] / "src"
POOLED = Path(__file__).parents[1] / "pooled"  # in a run through PgBouncer
PATIENCE = 120.0


def _hear_ctrl_c() -> None:
    # The tests themselves may have been started in the background, where SIGINT is ignored and stays so.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _in_terminal(slave: int) -> None:
    _hear_ctrl_c()
    os.login_tty(slave)


class Command(Protocol):
    def __call__(self, *args: str, **options: Any) -> Started: ...


class Started:
    """A running command. Everything it writes is collected while it runs."""

    def __init__(self, args: tuple[str, ...], *, cwd: Path, terminal: bool = False, **environment: str) -> None:
        self._said = ""
        self._deaf = False
        self._news = threading.Condition()
        line = [sys.executable, "-m", "tasklib", *args]
        env = own_environment(environment)
        if terminal:
            self._master, slave = pty.openpty()
            self.process = subprocess.Popen(
                line, cwd=cwd, env=env, close_fds=True, preexec_fn=lambda: _in_terminal(slave), start_new_session=False
            )
            os.close(slave)
        else:
            self._master, theirs = os.pipe()
            self.process = subprocess.Popen(
                line, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, preexec_fn=_hear_ctrl_c
            )
            os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def said(self) -> str:
        with self._news:
            return self._said

    def until(self, *texts: str, count: int = 1) -> str:
        """Wait until it has said each of these (so often); returns all it said."""
        with self._news:
            self._news.wait_for(lambda: all(self._said.count(t) >= count for t in texts) or self._is_over(), PATIENCE)
            assert all(self._said.count(t) >= count for t in texts), f"it never said {texts}, but:\n{self._said}"
            return self._said

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def press(self, key: str) -> None:
        """Press a key in its terminal."""
        os.write(self._master, key.encode())

    def stop_reading(self) -> None:
        """Close our end of its pipe after the next thing it says."""
        self._deaf = True

    def exit_code(self) -> int:
        """Wait for its end, and for all it said."""
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it goes on for ever:\n{self.said()}") from None
        self._reader.join(PATIENCE)
        return code

    def end(self) -> None:
        if self.process.poll() is None:
            for last_resort in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
                self.process.send_signal(last_resort)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(5)
                    break
        self.process.wait()
        self._reader.join(PATIENCE)

    def _is_over(self) -> bool:
        return self.process.poll() is not None and not self._reader.is_alive()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # a terminal whose last user has left gives an error instead of an end
            while not self._deaf and (piece := os.read(self._master, 65536)):
                with self._news:
                    self._said += piece.decode(errors="replace").replace("\r\n", "\n")
                    self._news.notify_all()
        os.close(self._master)
        with self._news:
            self._news.notify_all()


def own_environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TASKLIB_")}
    path = os.pathsep.join([str(POOLED), str(SOURCES)] if "POOLED_PORTS" in kept else [str(SOURCES)])
    return {**kept, "PYTHONPATH": path, "COLUMNS": "200", "TERM": "xterm", "PYTHONWARNINGS": "error", **more}

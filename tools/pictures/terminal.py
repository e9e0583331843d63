"""A command in a terminal of its own, and what its screen showed at which second."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

WIDTH, HEIGHT = 92, 24
_STEPS = re.compile(r"\x1b\[(?P<number>\d*)(?P<code>[AK])|\x1b\[\?25[lh]|(?P<end>\r?\n)|(?P<back>\r)|\x1b\[[\d;]*m|.")
LONGEST_WAIT, SHORTEST_FRAME, LAST_FRAME = 0.9, 0.18, 5.0
"""Seconds of the film: nothing happens on the screen for longer than the first, and it changes no faster than the
second."""


class Output(NamedTuple):
    """What a command wrote, and when."""

    at: float
    text: str


@dataclass(frozen=True)
class Frame:
    """The lines of the screen, with their colours as escape sequences, and for how many seconds they are shown."""

    lines: tuple[str, ...]
    seconds: float


class Screen:
    """The lines that a program has written, as far as Rich's live displays move over them."""

    def __init__(self) -> None:
        self.lines = [""]
        self._row = 0

    def feed(self, text: str) -> None:
        for step in _STEPS.finditer(text):
            if step["code"] == "A":
                self._row = max(0, self._row - int(step["number"] or 1))
            elif step["code"] == "K":
                self.lines[self._row] = ""
            elif step["end"]:
                self._row += 1
                if self._row == len(self.lines):
                    self.lines.append("")
            elif not step["back"] and not step[0].startswith("\x1b[?"):
                self.lines[self._row] += step[0]

    def seen(self) -> tuple[str, ...]:
        """The last lines, as many as a terminal has."""
        shown = self.lines[-HEIGHT:]
        return tuple(line.rstrip() for line in shown + [""] * (HEIGHT - len(shown)))


def record(command: Sequence[str]) -> list[Output]:
    """Run a command in a terminal until it ends."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", COLUMNS=str(WIDTH), LINES=str(HEIGHT))
        for said in ("CI", "NO_COLOR", "FORCE_COLOR"):
            os.environ.pop(said, None)
        os.execvp(command[0], list(command))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    outputs = list(_read(terminal))
    if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise SystemExit(
            f"{' '.join(command)} ended with {code}:\n{''.join(output.text for output in outputs)[-2000:]}"
        )
    return outputs


def _read(terminal: int) -> Iterator[Output]:
    began, pending = time.monotonic(), b""
    while True:
        try:
            pending += os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            return
        whole = pending[: pending.rfind(b"\n") + 1] or pending
        pending = pending[len(whole) :]
        yield Output(time.monotonic() - began, whole.decode(errors="replace"))


def frames(outputs: Iterable[Output]) -> list[Frame]:
    """What the screen showed, with long waits shortened and changes too quick to see left out."""
    screen, shown, since = Screen(), [], 0.0
    for output in outputs:
        if (wait := output.at - since) >= SHORTEST_FRAME:
            if any(screen.lines):  # not the time in which the program starts
                shown.append(Frame(screen.seen(), min(wait, LONGEST_WAIT)))
            since = output.at
        screen.feed(output.text)
    return [*shown, Frame(screen.seen(), LAST_FRAME)]

"""The program that the commands run inside of, such as Django's manage.py, if there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasklib.config import Config


@dataclass(frozen=True, slots=True)
class Host:
    """Values that a host program gives the commands in place of options, arguments and variables."""

    name: str
    """How the command is called there."""
    config: Callable[[], Config]
    modules: Sequence[str]
    """What a worker imports if its command names no modules: its child processes import it too."""
    load: Callable[[], None]
    """Import the tasks; raises a CommandError that says what to do if there are none."""


_host: Host | None = None


def host() -> Host | None:
    """The program around the command; None in `tasklib` itself."""
    return _host


def run_in(around: Host, arguments: Sequence[str]) -> None:
    """Run a command. Ends with SystemExit."""
    global _host
    from tasklib.cli.app import app

    _host = around
    app(args=list(arguments), prog_name=around.name)

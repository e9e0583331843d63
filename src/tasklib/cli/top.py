"""`tasklib top`."""

from __future__ import annotations

import contextlib
import select
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.options import ChosenDatabase, with_database

if TYPE_CHECKING:
    from rich.console import Console

    from tasklib.cli.top_figures import Figures
    from tasklib.client.clients import Client
    from tasklib.doctor.findings import Finding

_VISIT_SECONDS = 30.0


@with_database
def top(
    database: ChosenDatabase,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, metavar="SECONDS", help="The interval between refreshes.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and end.")] = False,
) -> None:
    """Watch the fleet: throughput, queues, workers, running tasks, failures, warnings.

    q quits, p pauses. Without a terminal it prints once and ends.
    """
    from rich.console import Console

    console = Console(highlight=False)
    with database.connected() as client:
        if once or not console.is_terminal:
            _print_once(console, client)
        else:
            _watch(console, client, interval)


def _print_once(console: Console, client: Client) -> None:
    from tasklib.cli.top_figures import look
    from tasklib.cli.top_screen import Frame

    figures, findings = client.perform(look(client.config)), _Visits().findings(client)
    frame = Frame(figures, None, _place(client), False, console.width, console.height, findings)
    console.print(frame.render())


class _Visits:
    """The doctor's warnings, asked for again after a while: they cost more than the figures."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._next = 0.0

    def findings(self, client: Client) -> list[Finding]:
        from tasklib.doctor.findings import Severity
        from tasklib.doctor.run import examine

        if time.monotonic() >= self._next:
            bad = [f for f in examine(client, thorough=False) if f.severity.rank >= Severity.WARNING.rank]
            self._found = sorted(bad, key=lambda f: -f.severity.rank)
            self._next = time.monotonic() + _VISIT_SECONDS
        return self._found


def _watch(console: Console, client: Client, interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from tasklib.cli.top_figures import Rate, look
    from tasklib.cli.top_screen import Frame
    from tasklib.errors import DatabaseUnavailable
    from tasklib.formatting import printable

    rate, visits, paused = Rate(), _Visits(), False
    findings: list[Finding] = []
    figures: Figures | None = None
    speed: float | None = None
    with Live(console=console, screen=True, auto_refresh=False) as live, _keys() as keys:
        while True:
            try:
                if not paused:
                    figures = client.perform(look(client.config))
                    speed = rate.after(figures)
                    findings = visits.findings(client)
                if figures is not None:
                    frame = Frame(figures, speed, _place(client), paused, console.width, console.height, findings)
                    live.update(frame.render(), refresh=True)
            except DatabaseUnavailable as e:  # it comes back
                live.update(Text(printable(str(e)), "red"), refresh=True)
            key = _pressed(keys, interval)
            if key == "q":
                return
            if key == "p":
                paused = not paused


def _place(client: Client) -> str:
    from tasklib.db.connect import address

    schema = client.config.schema
    return address(client.config.database_url) + (f" {schema}" if schema else "")


@contextlib.contextmanager
def _keys() -> Iterator[bool]:
    """Whether keys can be read one by one; Ctrl-C stays what it is."""
    import termios
    import tty

    try:
        before = termios.tcgetattr(sys.stdin)
    except (OSError, ValueError, termios.error):
        yield False
        return
    try:
        tty.setcbreak(sys.stdin)
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(keys: bool, seconds: float) -> str | None:
    """The key that is pressed within this time; None if none is."""
    if not keys:
        time.sleep(seconds)
        return None
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return sys.stdin.read(1).lower() if ready else None

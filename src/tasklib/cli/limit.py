"""`tasklib limit`: how many tasks run at a time, or begin within a time."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.declared import add_commands
from tasklib.cli.moments import span
from tasklib.cli.options import ChosenDatabase, JsonLines, usage_errors, with_database
from tasklib.cli.tables import print_found

if TYPE_CHECKING:
    from tasklib.store.limits import LimitInfo

app = typer.Typer(no_args_is_help=True)
Name = Annotated[
    str,
    typer.Argument(
        metavar="LIMIT", show_default=False, help="queue:NAME, name:TASK, share:SHARE, serial:QUEUE, or its own name."
    ),
]


class SerialChoice(StrEnum):
    HOLD = "hold"
    ASIDE = "aside"


@app.callback()
def limit() -> None:
    """Limit how many tasks run at a time, or begin within a time, over the whole fleet."""


@app.command("list")
@with_database
def list_(database: ChosenDatabase, json_: JsonLines = False) -> None:
    """List the limits, and how many tasks run behind each."""
    with database.connected() as client:
        found = client.limits()
    print_found(found, ("limit", "allows", "running", "set by"), _row, as_json=json_, none="no limits")


@app.command("set")
@with_database
def set_(
    database: ChosenDatabase,
    name: Name,
    max_running: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="How many tasks run at a time.", show_default=False)
    ] = None,
    rate: Annotated[float | None, typer.Option(metavar="N", help="How many tasks begin in --per.")] = None,
    per: Annotated[str | None, typer.Option(metavar="TIME", help="1s (the default), 1m, 1h, 1d.")] = None,
    burst: Annotated[int | None, typer.Option(metavar="N", help="With --rate: how many may begin at once.")] = None,
    serial: Annotated[
        SerialChoice | None,
        typer.Option(
            help="Only for a queue: its tasks run one at a time, in order. A failed one holds it, or steps aside."
        ),
    ] = None,
    weight: Annotated[
        int | None, typer.Option(metavar="N", help="Only for a share: how many tasks it runs in its turn.")
    ] = None,
    may_burst: Annotated[
        bool | None,
        typer.Option("--may-burst/--no-burst", help="Only for a share: it may exceed --max-running in idle slots."),
    ] = None,
) -> None:
    """Set a limit, in place of what it was. Takes effect at once; what runs goes on.

    Examples: tasklib limit set queue:mail --max-running 5

    tasklib limit set stripe --rate 100 --per 1m --burst 20

    tasklib limit set queue:ledger --serial hold
    """
    from tasklib.cli.report import note

    length = span("--per", per)
    with database.connected() as client, usage_errors():
        changed = client.set_limit(
            name,
            max_running=max_running,
            rate=rate,
            per=length.total_seconds() if length is not None else None,
            burst=burst,
            serial=None if serial is None else serial.value,
            weight=weight,
            may_burst=may_burst,
        )
    note(f"limit {name} is set" if changed else f"limit {name} was set that way already")


add_commands(app, "limit", Name, title="limit")


def _row(info: LimitInfo) -> tuple[str, ...]:
    from tasklib.client.limits import said

    return info.name, said(info) or "no bound", f"{info.running:,}", info.source

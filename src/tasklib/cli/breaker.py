"""`tasklib breaker`: stop tasks of a name after too many failures, for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.declared import add_commands
from tasklib.cli.moments import span
from tasklib.cli.options import ChosenDatabase, JsonLines, usage_errors, with_database
from tasklib.cli.tables import print_found

if TYPE_CHECKING:
    from tasklib.store.breakers import BreakerInfo

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The name of the task function.")]


@app.callback()
def breaker() -> None:
    """Hold tasks of a name back after too many failures, without using retries."""


@app.command("list")
@with_database
def list_(database: ChosenDatabase, json_: JsonLines = False) -> None:
    """List the circuit breakers and their states."""
    with database.connected() as client:
        found = client.breakers()
    columns = ("breaker", "state", "opens after", "opened", "set by")
    print_found(found, columns, _row, as_json=json_, none="no breakers")


@app.command("set")
@with_database
def set_(
    database: ChosenDatabase,
    name: Name,
    failures: Annotated[
        float, typer.Option(metavar="SHARE", help="The share of failed attempts that opens it, from 0 to 1.")
    ] = 0.5,
    at_least: Annotated[int, typer.Option(metavar="N", help="The fewest attempts by which it is judged.")] = 20,
    within: Annotated[str, typer.Option(metavar="TIME", help="The time over which attempts count.")] = "1m",
    pause: Annotated[str, typer.Option(metavar="TIME", help="How long tasks wait while it is open.")] = "1m",
    probes: Annotated[int, typer.Option(metavar="N", help="How many tasks run first after the pause.")] = 3,
) -> None:
    """Set the circuit breaker of a task name, in place of what it was.

    Example: tasklib breaker set charge --failures 0.5 --at-least 20 --within 1m --pause 2m
    """
    from tasklib.cli.report import note

    counted, waits = span("--within", within), span("--pause", pause)
    assert counted is not None
    assert waits is not None
    with database.connected() as client, usage_errors():
        changed = client.set_breaker(
            name,
            failures=failures,
            at_least=at_least,
            within=counted.total_seconds(),
            pause=waits.total_seconds(),
            probes=probes,
        )
    note(f"breaker {name} is set" if changed else f"breaker {name} was set that way already")


@app.command("open")
@with_database
def open_(
    database: ChosenDatabase,
    name: Name,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="How long it stays open before it probes. Default: until it is closed."
        ),
    ] = None,
) -> None:
    """Open a circuit breaker by hand: tasks of the name wait."""
    from tasklib.cli.report import note

    length = span("--for", for_)
    with database.connected() as client:
        changed = client.open_breaker(name, None if length is None else length.total_seconds())
    note(f"breaker {name} is open" if changed else f"breaker {name} was open already, or there is none")


@app.command()
@with_database
def close(database: ChosenDatabase, name: Name) -> None:
    """Close a circuit breaker by hand: tasks of the name run, and earlier failures don't count."""
    from tasklib.cli.report import note

    with database.connected() as client:
        changed = client.close_breaker(name)
    note(f"breaker {name} is closed" if changed else f"breaker {name} was closed already, or there is none")


add_commands(app, "breaker", Name, title="circuit breaker")


def _row(info: BreakerInfo) -> tuple[str, ...]:
    from tasklib.client.breakers import state_text, terms_text

    return info.name, state_text(info), terms_text(info), f"{info.opened:,}", info.source

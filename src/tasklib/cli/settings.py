"""`tasklib settings`: what can be changed for the whole fleet while it runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.options import ChosenDatabase, with_database
from tasklib.cli.tables import print_rows

if TYPE_CHECKING:
    from tasklib.client.operations import Settings

NAMES = ("promote_to_medium_after_seconds", "promote_to_high_after_seconds")
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
app = typer.Typer(invoke_without_command=True)
_DATABASE = "tasklib.settings"
"""Where the context keeps the database options that were given before the subcommand: they count for it too."""


@app.callback()
@with_database
def settings(database: ChosenDatabase, context: typer.Context, json_: AsJson = False) -> None:
    """Show the settings of the whole fleet. `tasklib settings set NAME=VALUE` changes them."""
    if context.invoked_subcommand is not None:
        context.meta[_DATABASE] = database
    else:
        _print(_read(database), json_)


@app.command()
@with_database
def show(database: ChosenDatabase, context: typer.Context, json_: AsJson = False) -> None:
    """Show the settings of the whole fleet."""
    _print(_read(database.or_else(context.meta.get(_DATABASE))), json_)


@app.command("set")
@with_database
def set_(
    database: ChosenDatabase,
    context: typer.Context,
    changes: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE",
            show_default=False,
            help=f"{' or '.join(NAMES)}, in seconds; an empty value goes back to each program's configuration.",
        ),
    ],
    json_: AsJson = False,
) -> None:
    """Change settings for every worker, from its next claim on.

    Example: tasklib settings set promote_to_high_after_seconds=300
    """
    with database.or_else(context.meta.get(_DATABASE)).connected() as client:
        _print(client.change_settings(**_changes(changes)), json_)


def _read(database: ChosenDatabase) -> Settings:
    with database.connected() as client:
        return client.settings()


def _changes(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in NAMES:
            raise typer.BadParameter(f"{word!r} is not NAME=VALUE with one of: {', '.join(NAMES)}.")
        try:
            found[name] = float(text) if text.strip() else None
        except ValueError:
            raise typer.BadParameter(f"{name} is a number of seconds, not {text!r}.") from None
    return found


def _print(found: Settings, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(found)))
        return
    rows = [
        (name, f"{getattr(found, name):g}", "set for the fleet" if name in found.changed else "configuration")
        for name in NAMES
    ]
    print_rows(("setting", "value", "from"), rows, none="", numbers={"value"})

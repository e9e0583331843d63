"""`tasklib search`: searches that are kept under a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.options import ChosenDatabase, JsonLines, with_database
from tasklib.cli.tables import print_found

if TYPE_CHECKING:
    from tasklib.store.saved_searches import SavedSearch

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The name of the search.")]


@app.callback()
def search() -> None:
    """Keep searches of tasks under a name, for all who use the database; tasklib list --saved NAME runs one."""


@app.command("list")
@with_database
def list_(database: ChosenDatabase, json_: JsonLines = False) -> None:
    """List the saved searches."""
    with database.connected() as client:
        found = client.saved_searches()
    print_found(found, ("name", "search", "saved by"), _row, as_json=json_, none="no saved searches")


@app.command()
@with_database
def save(
    database: ChosenDatabase,
    name: Name,
    search: Annotated[
        str, typer.Argument(metavar="SEARCH", show_default=False, help="The search, as for tasklib list.")
    ],
) -> None:
    """Save a search, in place of the one that this name had.

    Example: tasklib search save "late mail" 'queue:mail state:failed failed:<1h'
    """
    from tasklib.cli.report import note

    with database.connected() as client:
        changed = client.save_search(name, search)
    note("saved" if changed else "it was saved so before")


@app.command()
@with_database
def delete(database: ChosenDatabase, name: Name) -> None:
    """Delete a saved search; no task changes."""
    from tasklib.cli.report import CommandError, note

    with database.connected() as client:
        if not client.delete_search(name):
            raise CommandError(f"there is no saved search {name!r}; tasklib search list shows them.")
    note("deleted")


def _row(saved: SavedSearch) -> tuple[str, ...]:
    return (saved.name, saved.search, saved.saved_by)

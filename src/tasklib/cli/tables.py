"""Listings: a table for a person, columns between tabs for a script."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import typer

from tasklib.observe.formatting import printable


def print_rows(titles: Sequence[str], rows: Iterable[Sequence[str]], *, none: str, numbers: Iterable[str] = ()) -> None:
    """The rows under their titles; piped, just the rows. `none` is said when there are none."""
    rows = [[printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in rows:
            typer.echo("\t".join(row))
    elif rows:
        _print_table(titles, rows, frozenset(numbers))
    else:
        from tasklib.cli.report import note

        note(none, "dim")


def _print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], numbers: frozenset[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(title, justify="right" if title in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)

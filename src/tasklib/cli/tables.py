"""Listings: a table for a person, columns between tabs for a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

import typer

from tasklib.observe.formatting import printable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def print_found(
    found: Iterable[T],
    titles: Sequence[str],
    row: Callable[[T], Sequence[str]],
    *,
    as_json: bool,
    none: str,
    numbers: Iterable[str] = (),
) -> None:
    """Each as a row, or with all its fields as a line of JSON."""
    if not as_json:
        print_rows(titles, map(row, found), none=none, numbers=numbers)
        return
    for one in found:
        typer.echo(json.dumps(asdict(one), default=str))


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

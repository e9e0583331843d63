"""Listings: a table for a person, columns between tabs for a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

import typer

from tasklib.observe.formatting import printable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from rich.table import Table
    from rich.text import Text

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


def fitted(
    titles: Sequence[str],
    rows: Sequence[Sequence[Text]],
    width: int,
    *,
    least: Mapping[str, int],
    droppable: str | None = None,
    widest: int = 40,
) -> Table:
    """A table as wide as the terminal at most, one line for each row.

    Only the columns in `least` give way, down to that width, those with most to give first; before that, the
    `droppable` column is left out where it is narrow. Cells of other columns are never cut.
    """
    from rich import box
    from rich.table import Table

    natural = [max([len(t), *(row[n].cell_len for row in rows)]) for n, t in enumerate(titles)]
    widths = {
        t: min(size, widest) if t in least and t != titles[-1] else size
        for t, size in zip(titles, natural, strict=True)
    }
    if droppable and sum(least.get(t, size) + 2 for t, size in widths.items()) - 2 > width:
        del widths[droppable]
    over = sum(widths.values()) + 2 * (len(widths) - 1) - width
    while over > 0 and (wide := [t for t in least if widths.get(t, 0) > least[t]]):
        widths[max(wide, key=lambda t: widths[t] - least[t])] -= 1
        over -= 1
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for title, size in widths.items():
        table.add_column(title, width=size, no_wrap=title in least, overflow="ellipsis" if title in least else "fold")
    for row in rows:
        table.add_row(*(cell for title, cell in zip(titles, row, strict=True) if title in widths))
    return table

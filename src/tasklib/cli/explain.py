"""`tasklib explain`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.listing import STATE_STYLES, print_title
from tasklib.cli.options import ChosenDatabase, Id, with_database
from tasklib.formatting import count, duration, json_text, printable

if TYPE_CHECKING:
    from rich.console import Console

    from tasklib.client.explaining import Explanation, Position


@with_database
def explain(
    database: ChosenDatabase,
    task_id: Id,
    json_: Annotated[bool, typer.Option("--json", help="The explanation as JSON.")] = False,
) -> None:
    """Show why a task is not running, what to do about it, and its position in the queue."""
    from tasklib.cli.lookup import full_id

    with database.connected() as client:
        explanation = client.explain_task(full_id(client, task_id))
    if json_:
        typer.echo(json_text(explanation.as_dict(), indent=2))
        return
    from rich.console import Console

    # Lines end between words in a terminal; in a file each sentence is one line.
    print_explanation(Console(highlight=False, soft_wrap=not sys.stdout.isatty()), explanation)


def print_explanation(console: Console, explanation: Explanation) -> None:
    """The explanation for a person."""
    from rich.padding import Padding
    from rich.text import Text

    state = Text(explanation.state, STATE_STYLES.get(explanation.state, ""))
    print_title(console, explanation.name, str(explanation.task_id), state)
    for reason in explanation.reasons:
        console.print(Text(f"\n{printable(reason.sentence)}"))
        if reason.hint:
            console.print(Padding(Text(f"→ {printable(reason.hint)}", "dim"), (0, 0, 0, 2), expand=False))
    if explanation.position is not None:
        console.print(Text(f"\n{in_words(explanation.position)}"))


def in_words(position: Position) -> str:
    """`Number 13 in line; about 26.0 s until it begins (...)`."""
    least = "at least " if position.is_capped else ""
    place = f"Number {least}{position.number:,} in line"
    if not position.workers:
        return f"{place}. Its start time is unknown: no live worker can run it."
    if position.eta_seconds is None or position.average_seconds is None:
        return f"{place}. Its start time is unknown: no task of its queue ended within the last hour."
    return (
        f"{place}; {least or 'about '}{duration(position.eta_seconds)} until it begins, if its workers do nothing else "
        f"({count(position.slots, 'slot')}, {duration(position.average_seconds)} per task lately)."
    )

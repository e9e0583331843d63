"""`tasklib pause`, `tasklib resume` and `tasklib pauses`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.moments import relative
from tasklib.cli.options import ChosenDatabase, JsonLines, with_database
from tasklib.cli.tables import print_found

if TYPE_CHECKING:
    from tasklib.store.pauses import Paused

Queue = Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="All tasks in this queue.")]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="All tasks with this name.")]


@with_database
def pause(database: ChosenDatabase, queue: Queue = None, name: Name = None) -> None:
    """Stop workers from starting tasks of a queue or a name. Running tasks go on; new ones can be submitted."""
    from tasklib.cli.report import note

    what = _one(queue, name)
    with database.connected() as client:
        changed = client.pause(queue=queue, name=name)
    note(f"paused {what}" if changed else f"{what} was paused already")


@with_database
def resume(database: ChosenDatabase, queue: Queue = None, name: Name = None) -> None:
    """End a pause."""
    from tasklib.cli.report import note

    what = _one(queue, name)
    with database.connected() as client:
        changed = client.resume(queue=queue, name=name)
    note(f"resumed {what}" if changed else f"{what} was not paused")


@with_database
def pauses(database: ChosenDatabase, json_: JsonLines = False) -> None:
    """List the paused queues and task names."""
    with database.connected() as client:
        found = client.pauses()
    print_found(found, ("kind", "value", "since"), _row, as_json=json_, none="nothing is paused")


def _row(paused: Paused) -> tuple[str, ...]:
    return paused.kind, paused.value, relative(paused.paused_at, datetime.now(UTC))


def _one(queue: str | None, name: str | None) -> str:
    if (queue is None) == (name is None):
        raise typer.BadParameter("give either --queue or --name.")
    return f"queue {queue}" if queue is not None else f"name {name}"

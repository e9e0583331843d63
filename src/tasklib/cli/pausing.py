"""`tasklib pause`, `tasklib resume` and `tasklib pauses`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.moments import relative
from tasklib.cli.options import DatabaseUrl, Debug, JsonLines, Schema, connected
from tasklib.cli.tables import print_found

if TYPE_CHECKING:
    from tasklib.store.pauses import Paused

Queue = Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="All tasks in this queue.")]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="All tasks with this name.")]


def pause(
    queue: Queue = None,
    name: Name = None,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """Stop workers from starting tasks of a queue or a name. Running tasks go on; new ones can be submitted."""
    from tasklib.cli.report import note

    what = _one(queue, name)
    with connected(database_url, schema) as client:
        changed = client.pause(queue=queue, name=name)
    note(f"paused {what}" if changed else f"{what} was paused already")


def resume(
    queue: Queue = None,
    name: Name = None,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """End a pause."""
    from tasklib.cli.report import note

    what = _one(queue, name)
    with connected(database_url, schema) as client:
        changed = client.resume(queue=queue, name=name)
    note(f"resumed {what}" if changed else f"{what} was not paused")


def pauses(
    json_: JsonLines = False,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """List the paused queues and task names."""
    with connected(database_url, schema) as client:
        found = client.pauses()
    print_found(found, ("kind", "value", "since"), _row, as_json=json_, none="nothing is paused")


def _row(paused: Paused) -> tuple[str, ...]:
    return paused.kind, paused.value, relative(paused.paused_at, datetime.now(UTC))


def _one(queue: str | None, name: str | None) -> str:
    if (queue is None) == (name is None):
        raise typer.BadParameter("give either --queue or --name.")
    return f"queue {queue}" if queue is not None else f"name {name}"

"""`tasklib pause`, `tasklib resume` and `tasklib pauses`."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from tasklib.cli.moments import relative
from tasklib.cli.options import DatabaseUrl, Debug, Schema, configured
from tasklib.cli.tables import print_rows

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
    from tasklib.client.clients import Client

    what = _one(queue, name)
    with Client(configured(database_url, schema)) as client:
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
    from tasklib.client.clients import Client

    what = _one(queue, name)
    with Client(configured(database_url, schema)) as client:
        changed = client.resume(queue=queue, name=name)
    note(f"resumed {what}" if changed else f"{what} was not paused")


def pauses(
    json_: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """List the paused queues and task names."""
    from tasklib.client.clients import Client

    with Client(configured(database_url, schema)) as client:
        found = client.pauses()
    if json_:
        for paused in found:
            typer.echo(json.dumps(asdict(paused), default=str))
        return
    now = datetime.now(UTC)
    rows = [(p.kind, p.value, relative(p.paused_at, now)) for p in found]
    print_rows(("kind", "value", "since"), rows, none="nothing is paused")


def _one(queue: str | None, name: str | None) -> str:
    if (queue is None) == (name is None):
        raise typer.BadParameter("give either --queue or --name.")
    return f"queue {queue}" if queue is not None else f"name {name}"

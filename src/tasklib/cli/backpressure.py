"""`tasklib backpressure`: bounds on what may wait in a queue."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from tasklib.cli.options import DatabaseUrl, Debug, Schema, configured
from tasklib.cli.tables import print_rows

app = typer.Typer(no_args_is_help=True)
Queue = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)]


@app.callback()
def backpressure() -> None:
    """Refuse submissions to a queue while too much waits in it."""


@app.command("list")
def list_(
    json_: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """List the queues with bounds."""
    from tasklib.client.clients import Client

    with Client(configured(database_url, schema)) as client:
        found = client.queue_bounds()
    if json_:
        for bound in found:
            typer.echo(json.dumps(asdict(bound), default=str))
        return
    rows = [(b.queue, _seconds(b.max_wait), "" if b.max_pending is None else f"{b.max_pending:,}") for b in found]
    print_rows(("queue", "max wait", "max pending"), rows, none="no queue has bounds")


@app.command("set")
def set_(
    queue: Queue,
    max_wait: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long the oldest due task may have waited.")
    ] = None,
    max_pending: Annotated[
        int | None, typer.Option(metavar="N", help="How many due tasks may wait, as the leader counted them last.")
    ] = None,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """Set the bounds of a queue, in place of those it has."""
    from tasklib.cli.report import note
    from tasklib.client.clients import Client
    from tasklib.errors import InvalidOption

    if max_wait is None and max_pending is None:
        raise typer.BadParameter("give --max-wait, --max-pending or both.")
    with Client(configured(database_url, schema)) as client:
        try:
            client.bound_queue(queue, max_wait=max_wait, max_pending=max_pending)
        except InvalidOption as e:
            raise typer.BadParameter(str(e)) from e
    note(f"queue {queue} is bounded")


@app.command()
def clear(queue: Queue, database_url: DatabaseUrl = None, schema: Schema = None, debug: Debug = False) -> None:
    """Remove the bounds of a queue."""
    from tasklib.cli.report import note
    from tasklib.client.clients import Client

    with Client(configured(database_url, schema)) as client:
        changed = client.bound_queue(queue)
    note(f"queue {queue} has no bounds any more" if changed else f"queue {queue} had no bounds")


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:g} s"

"""`tasklib backpressure`: bounds on what may wait in a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.options import DatabaseUrl, Debug, JsonLines, Schema, connected
from tasklib.cli.tables import print_found

if TYPE_CHECKING:
    from tasklib.store.backpressure import QueueBound

app = typer.Typer(no_args_is_help=True)
Queue = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)]


@app.callback()
def backpressure() -> None:
    """Refuse submissions to a queue while too much waits in it."""


@app.command("list")
def list_(
    json_: JsonLines = False,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """List the queues with bounds."""
    with connected(database_url, schema) as client:
        found = client.queue_bounds()
    print_found(found, ("queue", "max wait", "max pending"), _row, as_json=json_, none="no queue has bounds")


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
    from tasklib.errors import InvalidOption

    if max_wait is None and max_pending is None:
        raise typer.BadParameter("give --max-wait, --max-pending or both.")
    with connected(database_url, schema) as client:
        try:
            client.bound_queue(queue, max_wait=max_wait, max_pending=max_pending)
        except InvalidOption as e:
            raise typer.BadParameter(str(e)) from e
    note(f"queue {queue} is bounded")


@app.command()
def clear(queue: Queue, database_url: DatabaseUrl = None, schema: Schema = None, debug: Debug = False) -> None:
    """Remove the bounds of a queue."""
    from tasklib.cli.report import note

    with connected(database_url, schema) as client:
        changed = client.bound_queue(queue)
    note(f"queue {queue} has no bounds any more" if changed else f"queue {queue} had no bounds")


def _row(bound: QueueBound) -> tuple[str, ...]:
    max_wait = "" if bound.max_wait is None else f"{bound.max_wait:g} s"
    return bound.queue, max_wait, "" if bound.max_pending is None else f"{bound.max_pending:,}"

"""`tasklib backpressure`: bounds on what may wait in a queue, or of a task name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.options import ChosenDatabase, JsonLines, usage_errors, with_database
from tasklib.cli.tables import print_found

if TYPE_CHECKING:
    from tasklib.store.backpressure import NameBound, QueueBound

app = typer.Typer(no_args_is_help=True)
Subject = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False, help="With --name: a task name.")]
IsName = Annotated[bool, typer.Option("--name", help="The bounds are those of a task name, in any queue.")]


@app.callback()
def backpressure() -> None:
    """Refuse submissions to a queue, or of a task name, while too much waits."""


@app.command("list")
@with_database
def list_(database: ChosenDatabase, json_: JsonLines = False) -> None:
    """List the queues and task names with bounds."""
    with database.connected() as client:
        found: list[QueueBound | NameBound] = [*client.queue_bounds(), *client.name_bounds()]
    print_found(found, ("of", "max wait", "max pending"), _row, as_json=json_, none="no queue or name has bounds")


@app.command("set")
@with_database
def set_(
    database: ChosenDatabase,
    queue: Subject,
    max_wait: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long the oldest due task may have waited.")
    ] = None,
    max_pending: Annotated[
        int | None, typer.Option(metavar="N", help="How many due tasks may wait, as the leader counted them last.")
    ] = None,
    name: IsName = False,
) -> None:
    """Set the bounds of a queue or task name, in place of those it has.

    Examples: tasklib backpressure set mail --max-wait 60

    tasklib backpressure set send_email --name --max-pending 5000
    """
    from tasklib.cli.report import note

    if max_wait is None and max_pending is None:
        raise typer.BadParameter("give --max-wait, --max-pending or both.")
    with database.connected() as client, usage_errors():
        (client.bound_name if name else client.bound_queue)(queue, max_wait=max_wait, max_pending=max_pending)
    note(f"{'name' if name else 'queue'} {queue} is bounded")


@app.command()
@with_database
def clear(database: ChosenDatabase, queue: Subject, name: IsName = False) -> None:
    """Remove the bounds of a queue or task name."""
    from tasklib.cli.report import note

    with database.connected() as client:
        changed = (client.bound_name if name else client.bound_queue)(queue)
    what = f"{'name' if name else 'queue'} {queue}"
    note(f"{what} has no bounds any more" if changed else f"{what} had no bounds")


def _row(bound: QueueBound | NameBound) -> tuple[str, ...]:
    from tasklib.store.backpressure import QueueBound

    what = f"queue {bound.queue}" if isinstance(bound, QueueBound) else f"name {bound.name}"
    max_wait = "" if bound.max_wait is None else f"{bound.max_wait:g} s"
    return what, max_wait, "" if bound.max_pending is None else f"{bound.max_pending:,}"

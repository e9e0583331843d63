"""`tasklib signal`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tasklib.cli.options import ChosenDatabase, Id, with_database


@with_database
def signal(
    database: ChosenDatabase,
    task_id: Id,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The signal it waits for.", show_default=False)],
    payload: Annotated[str, typer.Argument(metavar="JSON", help="The payload, as JSON.")] = "null",
    key: Annotated[str | None, typer.Option(help="Send it once, however often this is run.")] = None,
) -> None:
    """Send a signal to a durable task. It goes on if it waits for that; else the signal is kept.

    Example: tasklib signal 3f9a11c2 approved '{"by": "ann"}'
    """
    from tasklib.cli.lookup import full_id
    from tasklib.cli.report import CommandError

    try:
        value = json.loads(payload)
    except ValueError as e:
        raise CommandError(f"{payload!r} is not JSON: {e}. A text needs quotes: '\"yes\"'.") from None
    with database.connected() as client:
        found = full_id(client, task_id)
        if not client.signal_on_record(found, name, value, key=key):
            raise CommandError(f"task {found} is finished, so the signal was not sent.")
        typer.echo(f"{found}\tsent")

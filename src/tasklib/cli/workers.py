"""`tasklib workers` and `tasklib workers drain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.options import ChosenDatabase, JsonLines, with_database
from tasklib.cli.tables import print_found
from tasklib.formatting import printable
from tasklib.observe.formatting import duration

if TYPE_CHECKING:
    from tasklib.client.clients import Client
    from tasklib.store.fleet import WorkerInfo

TITLES = ("id", "status", "leader", "load", "queues", "capabilities", "version", "host:pid", "heartbeat")
app = typer.Typer(invoke_without_command=True)
_DATABASE = "tasklib.workers"
"""Where the context keeps the database options that were given before the subcommand: they count for it too."""


@app.callback()
@with_database
def workers(database: ChosenDatabase, context: typer.Context, json_: JsonLines = False) -> None:
    """List the workers. `tasklib workers drain ID` lets one finish its tasks and end."""
    if context.invoked_subcommand is not None:
        context.meta[_DATABASE] = database
        return
    from tasklib.cli.report import note
    from tasklib.client.effects import once
    from tasklib.store import fleet

    with database.connected() as client:
        found = client.workers()
        leader = client.perform(once(fleet.leader()))
    print_found(found, TITLES, row, as_json=json_, none="no workers")
    if json_:
        return
    if leader is None:
        note("no worker and no server leads", "yellow")
    elif not any(worker.is_leader for worker in found):
        note(f"led by {printable(leader)}")


@app.command()
@with_database
def drain(
    database: ChosenDatabase,
    context: typer.Context,
    worker_id: Annotated[
        str, typer.Argument(metavar="ID", show_default=False, help="The id of the worker, or the end of it.")
    ],
) -> None:
    """Request a worker to take no more tasks, finish those it has, and end."""
    from tasklib.cli.report import note

    with database.or_else(context.meta.get(_DATABASE)).connected() as client:
        found = _full_id(client, worker_id)
        client.drain_worker(found)
    note(f"asked {found} to drain")


def row(worker: WorkerInfo) -> tuple[str, ...]:
    """One worker for a person or a script."""
    status = worker.status
    if status == "active" and worker.drain_requested_at is not None:
        status = "asked to drain"
    return (
        worker.id,
        status,
        "leader" if worker.is_leader else "",
        f"{worker.current_load}/{worker.capacity}",
        "all" if worker.queues is None else ",".join(worker.queues),
        ",".join(worker.capabilities),
        worker.version,
        f"{worker.host}:{worker.pid}",
        f"{duration(worker.seconds_since_heartbeat)} ago",
    )


def _full_id(client: Client, text: str) -> str:
    """The id itself, or the one live worker whose id ends like this."""
    live = [w.id for w in client.workers() if w.status != "dead"]
    ending = [i for i in live if i.endswith(text)]
    return ending[0] if text not in live and len(ending) == 1 else text

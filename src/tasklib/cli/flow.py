"""`tasklib flow`: tasks that wait for each other."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.confirm import Yes, confirm
from tasklib.cli.options import ChosenDatabase, JsonLines, with_database
from tasklib.cli.tables import print_rows
from tasklib.formatting import count, printable

if TYPE_CHECKING:
    from tasklib.client.flows import FlowDetails
    from tasklib.store.flows import FlowInfo

app = typer.Typer(no_args_is_help=True, help="Show, draw, cancel and replay flows.")

Id = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="The flow's id, or the end of it.")]


class Drawing(StrEnum):
    MERMAID = "mermaid"
    DOT = "dot"


@app.command("list")
@with_database
def list_(
    database: ChosenDatabase,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only flows of this name.")] = None,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Only flows that are not finished.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="The maximum number, the newest first.")] = 50,
    json_: JsonLines = False,
) -> None:
    """List flows, the newest first, and how far they are."""
    with database.connected() as client:
        found = client.flows(name=name, unfinished=unfinished, limit=limit)
    if json_:
        for info in found:
            typer.echo(json.dumps(_info(info)))
        return
    rows = (
        (
            str(i.id),
            i.name,
            i.state,
            str(i.total),
            str(i.completed),
            str(i.failed),
            i.created_at.isoformat("T", "seconds"),
        )
        for i in found
    )
    titles = ("id", "name", "state", "tasks", "completed", "failed", "created")
    print_rows(titles, rows, none="no flows", numbers={"tasks", "completed", "failed"})


@app.command()
@with_database
def show(
    database: ChosenDatabase,
    flow_id: Id,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object with all fields.")] = False,
) -> None:
    """Show a flow: its nodes, and what they wait for."""
    details = _details(flow_id, database)
    if json_:
        typer.echo(json.dumps(_everything(details), default=str))
        return
    info = details.info
    done = f"{info.completed} of {info.total} completed, {info.failed} failed"
    typer.echo(f"{printable(info.name)} {info.id}: {info.state}, {done}")
    if info.eta_seconds is not None:
        typer.echo(f"at this pace, about {info.eta_seconds:.0f} s to go")
    before = {name: [b for b, after in details.edges if after == name] for name in (n.name for n in details.nodes)}
    rows = ((n.name, n.task, str(n.count), _states(n.states), ", ".join(before[n.name])) for n in details.nodes)
    print_rows(("node", "task", "tasks", "states", "after"), rows, none="no tasks", numbers={"tasks"})


@app.command()
@with_database
def graph(
    database: ChosenDatabase,
    flow_id: Id,
    format_: Annotated[Drawing, typer.Option("--format", help="The language of the drawing.")] = Drawing.MERMAID,
) -> None:
    """Write the graph of a flow for Mermaid or Graphviz; a group of any size is one node."""
    from tasklib.client.flow_drawings import drawn

    typer.echo(drawn(_details(flow_id, database), format_.value))


@app.command()
@with_database
def cancel(database: ChosenDatabase, flow_id: Id, yes: Yes = False) -> None:
    """Cancel all tasks of a flow that have not ended."""
    from tasklib.cli.lookup import full_flow_id

    with database.connected() as client:
        info = client.get_flow(full_flow_id(client, flow_id)).info
        left = info.total - info.completed - info.failed
        confirm(f"cancel {count(left, 'task')} of the flow {printable(info.name)}", yes=yes, has_dry_run=False)
        counts = client.cancel_flow(info.id)
    typer.echo(f"cancelled {counts.cancelled}, requested {counts.asked} to stop")


@app.command()
@with_database
def replay(database: ChosenDatabase, flow_id: Id, yes: Yes = False) -> None:
    """Let a flow go on where it failed or was cancelled; what has completed stays."""
    from tasklib.cli.lookup import full_flow_id

    with database.connected() as client:
        info = client.get_flow(full_flow_id(client, flow_id)).info
        ended = f"{count(info.failed, 'task that', 'tasks that')} failed or got cancelled"
        confirm(f"replay {ended} in the flow {printable(info.name)}", yes=yes, has_dry_run=False)
        revived = client.replay_flow(info.id)
    typer.echo(f"{count(revived, 'task starts', 'tasks start')} afresh")


def _details(flow_id: str, database: ChosenDatabase) -> FlowDetails:
    from tasklib.cli.lookup import full_flow_id

    with database.connected() as client:
        return client.get_flow(full_flow_id(client, flow_id))


def _info(info: FlowInfo) -> dict[str, object]:
    return {
        "id": str(info.id),
        "name": info.name,
        "state": info.state,
        "total": info.total,
        "completed": info.completed,
        "failed": info.failed,
        "created_at": info.created_at.isoformat(),
        "finished_at": info.finished_at.isoformat() if info.finished_at else None,
        "cancel_requested_at": info.cancel_requested_at.isoformat() if info.cancel_requested_at else None,
        "eta_seconds": info.eta_seconds,
    }


def _everything(details: FlowDetails) -> dict[str, object]:
    from dataclasses import asdict

    nodes = [asdict(node) for node in details.nodes]
    return {**_info(details.info), "nodes": nodes, "gates": [asdict(gate) for gate in details.gates]}


def _states(states: object) -> str:
    assert isinstance(states, dict)
    return ", ".join(f"{number} {state}" for state, number in sorted(states.items()))

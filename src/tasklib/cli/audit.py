"""`tasklib audit`: who did what."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.options import ChosenDatabase, JsonLines, with_database
from tasklib.cli.tables import print_rows
from tasklib.formatting import json_text
from tasklib.store.audit import Action

if TYPE_CHECKING:
    from tasklib.store.audit import AuditRecord


@with_database
def audit(
    database: ChosenDatabase,
    action: Annotated[Action | None, typer.Option(metavar="ACTION", help=f"One of {', '.join(Action)}.")] = None,
    actor: Annotated[str | None, typer.Option(metavar="NAME", help="By this actor, as shown in the list.")] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The full id of a task, worker or token; or queue:NAME, name:NAME."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000)] = 20,
    before: Annotated[int | None, typer.Option(metavar="N", help="The next page: records before this number.")] = None,
    json_: JsonLines = False,
) -> None:
    """List operators' changes, the latest first: cancel, replay, purge, pause, drain, settings, tokens."""
    from tasklib.cli.report import note

    with database.connected() as client:
        found = client.audit(action=action, actor=actor, target=target, before=before, limit=limit)
    if json_:
        for record in found:
            typer.echo(json_text({**asdict(record), "at": record.at.isoformat()}))
        return
    print_rows(("number", "at", "actor", "action", "target", "details"), map(row, found), none="nothing was recorded")
    if len(found) == limit and sys.stdout.isatty():
        note(f"There may be more: --before {found[-1].id}", "dim")


def row(record: AuditRecord) -> tuple[str, ...]:
    """One record for a person or a script."""
    at = f"{record.at.astimezone():%Y-%m-%d %H:%M:%S}" if sys.stdout.isatty() else record.at.isoformat()
    said = " ".join(f"{name}={_plain(value)}" for name, value in record.details.items())
    return (str(record.id), at, record.actor, record.action, record.target or "", said)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)

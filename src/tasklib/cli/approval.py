"""`tasklib approvals`, `tasklib approve` and `tasklib reject`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.options import ChosenDatabase, Id, with_database
from tasklib.cli.tables import print_rows
from tasklib.formatting import printable

if TYPE_CHECKING:
    from tasklib.store.approvals import OpenApproval

Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Which approval, if the task asks for several.")
]
Comment = Annotated[str, typer.Option("--comment", metavar="TEXT", help="A comment for the task and the audit.")]


@with_database
def approvals(
    database: ChosenDatabase,
    limit: Annotated[int, typer.Option(metavar="N", help="The maximum number, the oldest first.")] = 50,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object per line, with the forms.")] = False,
) -> None:
    """List the approvals that durable tasks wait for, the oldest first."""
    with database.connected() as client:
        found = client.approvals(limit=limit)
    if json_:
        for each in found:
            typer.echo(json.dumps(_everything(each)))
        return
    rows = ((str(a.task_id), a.task, a.name, a.title, a.asked_at.isoformat("T", "seconds"), _fields(a)) for a in found)
    print_rows(("task id", "task", "approval", "title", "asked", "to fill in"), rows, none="nothing waits for approval")


@with_database
def approve(
    database: ChosenDatabase,
    task_id: Id,
    fields: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIELD=VALUE]...", help="Values for the fields of the form.", show_default=False),
    ] = None,
    name: Name = None,
    comment: Comment = "",
) -> None:
    """Approve what a durable task asks for. It goes on, and the audit says who approved it.

    Example: tasklib approve 3f9a11c2 account=DE02 --comment "checked with the bank"
    """
    from tasklib.cli.lookup import full_id
    from tasklib.client.approval_forms import fields_of, read_texts

    texts = _texts(fields or [])
    with database.connected() as client:
        approval = client.approval(full_id(client, task_id), name)
        known = fields_of(approval.form)
        form: dict[str, Any] = {**texts, **read_texts([field for field in known if field.name in texts], texts)}
        client.answer(approval, approved=True, form=form, comment=comment)
        typer.echo(f"{approval.task_id}\t{printable(approval.name)}\tapproved")


@with_database
def reject(database: ChosenDatabase, task_id: Id, name: Name = None, comment: Comment = "") -> None:
    """Reject what a durable task asks for. It goes on with that, and the audit says who rejected it.

    Example: tasklib reject 3f9a11c2 --comment "the invoice is a duplicate"
    """
    from tasklib.cli.lookup import full_id

    with database.connected() as client:
        approval = client.approval(full_id(client, task_id), name)
        client.answer(approval, approved=False, form=None, comment=comment)
        typer.echo(f"{approval.task_id}\t{printable(approval.name)}\trejected")


def _texts(fields: list[str]) -> dict[str, str]:
    from tasklib.cli.report import CommandError

    given = {}
    for field in fields:
        name, equals, value = field.partition("=")
        if not equals or not name:
            raise CommandError(f"{field!r} fills in no field: write FIELD=VALUE.")
        given[name] = value
    return given


def _fields(approval: OpenApproval) -> str:
    from tasklib.client.approval_forms import fields_of

    return " ".join(f"{field.name}=" for field in fields_of(approval.form))


def _everything(approval: OpenApproval) -> dict[str, object]:
    return {
        "task_id": str(approval.task_id),
        "task": approval.task,
        "queue": approval.queue,
        "name": approval.name,
        "title": approval.title,
        "details": approval.details,
        "role": approval.role,
        "form": approval.form,
        "asked_at": approval.asked_at.isoformat(),
        "expires_at": approval.expires_at.isoformat() if approval.expires_at else None,
        "refused": approval.refused,
    }

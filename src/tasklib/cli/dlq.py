"""`tasklib dlq`: the dead letter queue."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypedDict
from uuid import UUID

import typer

from tasklib.cli.confirm import DryRun, Yes, confirm
from tasklib.cli.moments import past_moment, relative
from tasklib.cli.options import DatabaseUrl, Debug, Schema, configured
from tasklib.cli.show import show
from tasklib.cli.tables import print_rows
from tasklib.formatting import json_text
from tasklib.observe.formatting import count, last_line, short_id

if TYPE_CHECKING:
    from tasklib.client.clients import Client
    from tasklib.models import Task
    from tasklib.store.dead_letters import DeadLetterGroup

SHORT_FINGERPRINT = 8
Name = Annotated[str | None, typer.Option("--name", metavar="NAME")]
Queue = Annotated[str | None, typer.Option("--queue", metavar="QUEUE")]
Error = Annotated[str | None, typer.Option("--error", metavar="TEXT", help="With this in the traceback, in any case.")]
Fingerprint = Annotated[
    str | None, typer.Option("--fingerprint", metavar="F", help="One group of `tasklib dlq groups`, or its beginning.")
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Given up at or after: ISO 8601, or 2h for two hours ago.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Given up before.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line, with everything.")]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="ID", show_default=False, help="A task's id, or its end; repeatable.")
]
Everything = Annotated[bool, typer.Option("--all", help="Every dead letter.")]
AtMost = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many, the oldest first.")]

app = typer.Typer(no_args_is_help=True, help="Look at tasks that were given up; replay or purge them.")


class Filters(TypedDict):
    name: str | None
    queue: str | None
    error: str | None
    since: datetime | None
    until: datetime | None


@app.command("list")
def list_(
    name: Name = None,
    queue: Queue = None,
    error: Error = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000)] = 20,
    after: Annotated[str | None, typer.Option(metavar="ID", help="The next page: given up before this one.")] = None,
    json_: AsJson = False,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """List dead letters, the latest first."""
    from tasklib.cli.lookup import full_id
    from tasklib.cli.report import note
    from tasklib.client.clients import Client

    filters = _filters(name, queue, error, since, until)
    with Client(configured(database_url, schema)) as client:
        place = full_id(client, after) if after else None
        tasks = client.dead_letters(**filters, fingerprint=fingerprint, after=place, limit=limit)
    if json_:
        for task in tasks:
            typer.echo(json_text(task.model_dump(mode="json")))
        return
    _print_tasks(tasks)
    if len(tasks) == limit and sys.stdout.isatty():
        note(f"There may be more: --after {tasks[-1].id}", "dim")


@app.command()
def groups(
    name: Name = None,
    queue: Queue = None,
    error: Error = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000)] = 20,
    json_: AsJson = False,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """Group dead letters by their cause, the most frequent first."""
    from tasklib.client.clients import Client

    filters = _filters(name, queue, error, since, until)
    with Client(configured(database_url, schema)) as client:
        found = client.dead_letter_groups(**filters, limit=limit)
    if json_:
        for group in found:
            typer.echo(json.dumps(asdict(group), default=str))
        return
    titles = ("fingerprint", "tasks", "name", "first", "last", "sample", "error")
    print_rows(titles, map(_group_row, found), none="no dead letters", numbers={"tasks"})


app.command()(show)


@app.command()
def replay(
    task_ids: Ids = None,
    fingerprint: Fingerprint = None,
    name: Name = None,
    queue: Queue = None,
    error: Error = None,
    since: Since = None,
    until: Until = None,
    everything: Everything = False,
    limit: AtMost = None,
    per_second: Annotated[float | None, typer.Option(metavar="N", help="Let them in slowly.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """Run dead letters again from the start, the oldest first: by ids, by group, or all that fit.

    Example: tasklib dlq replay --fingerprint 1f3a9c02 --per-second 10
    """
    from tasklib.client.clients import Client

    filters = _filters(name, queue, error, since, until)
    with Client(configured(database_url, schema)) as client:
        chosen = _chosen(client, task_ids, fingerprint, filters, everything, limit)
        found = client.replay_dead_letters(**chosen, dry_run=True)
        if found and not dry_run:
            confirm(f"replay {count(len(found), 'dead letter')}", yes=yes or bool(task_ids))
            found = client.replay_dead_letters(**chosen, per_second=per_second)
    _print_ids(found, "would replay" if dry_run else "replayed")


@app.command()
def purge(
    task_ids: Ids = None,
    fingerprint: Fingerprint = None,
    name: Name = None,
    queue: Queue = None,
    error: Error = None,
    since: Since = None,
    until: Until = None,
    everything: Everything = False,
    limit: AtMost = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """Delete dead letters for good, the oldest first: by ids, by group, or all that fit."""
    from tasklib.client.clients import Client

    filters = _filters(name, queue, error, since, until)
    with Client(configured(database_url, schema)) as client:
        chosen = _chosen(client, task_ids, fingerprint, filters, everything, limit)
        found = client.purge_dead_letters(**chosen, dry_run=True)
        if found and not dry_run:
            confirm(f"delete {count(len(found), 'dead letter')} for good", yes=yes)
            found = client.purge_dead_letters(**chosen)
    _print_ids(found, "would purge" if dry_run else "purged")


def _filters(name: str | None, queue: str | None, error: str | None, since: str | None, until: str | None) -> Filters:
    return {
        "name": name,
        "queue": queue,
        "error": error,
        "since": past_moment("--since", since),
        "until": past_moment("--until", until),
    }


def _chosen(
    client: Client,
    task_ids: list[str] | None,
    fingerprint: str | None,
    filters: Filters,
    everything: bool,
    limit: int | None,
) -> dict[str, Any]:
    from tasklib.cli.lookup import full_id

    if not (task_ids or fingerprint or everything or any(value is not None for value in filters.values())):
        raise typer.BadParameter("say which: ids, --fingerprint or other options; --all for every dead letter.")
    ids = [full_id(client, text) for text in task_ids] if task_ids else None
    return {**filters, "ids": ids, "fingerprint": fingerprint, "everything": everything, "limit": limit}


def _print_ids(found: list[UUID], verb: str) -> None:
    from tasklib.cli.report import note

    for task_id in found:
        typer.echo(str(task_id))
    note(f"{verb} {count(len(found), 'dead letter')}")


def _print_tasks(tasks: list[Task]) -> None:
    if sys.stdout.isatty():
        now = datetime.now(UTC)
        rows = [
            (short_id(t.id), t.name, t.queue, relative(t.completed_at or now, now), last_line(t.error)) for t in tasks
        ]
    else:
        rows = [
            (str(t.id), t.name, t.queue, t.completed_at.isoformat() if t.completed_at else "", last_line(t.error))
            for t in tasks
        ]
    print_rows(("id", "name", "queue", "given up", "error"), rows, none="no dead letters")


def _group_row(group: DeadLetterGroup) -> tuple[str, ...]:
    now = datetime.now(UTC)
    whole = not sys.stdout.isatty()
    return (
        group.fingerprint if whole else group.fingerprint[:SHORT_FINGERPRINT],
        str(group.count),
        group.name,
        group.first_seen.isoformat() if whole else relative(group.first_seen, now),
        group.last_seen.isoformat() if whole else relative(group.last_seen, now),
        str(group.sample_id) if whole else short_id(group.sample_id),
        last_line(group.error),
    )

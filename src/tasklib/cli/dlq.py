"""`tasklib dlq`: the dead letter queue."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from tasklib.cli.confirm import DryRun, Yes, confirm
from tasklib.cli.filters import EveryDeadLetter, refuse_unfiltered, with_dead_letter_filter
from tasklib.cli.moments import relative
from tasklib.cli.options import AnyIds, ChosenDatabase, JsonLines, with_database
from tasklib.cli.show import show
from tasklib.cli.tables import print_found, print_rows
from tasklib.formatting import json_text
from tasklib.observe.formatting import count, last_line, short_id
from tasklib.store.filters import EVERY_DEAD_LETTER, DeadLetterFilter

if TYPE_CHECKING:
    from tasklib.client.clients import Client
    from tasklib.models import Task
    from tasklib.store.dead_letters import DeadLetterGroup

SHORT_FINGERPRINT = 8
AtMost = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="The maximum number, the oldest first.")
]

app = typer.Typer(no_args_is_help=True, help="List dead letters; replay or purge them.")


@app.command("list")
@with_dead_letter_filter
@with_database
def list_(
    database: ChosenDatabase,
    chosen: DeadLetterFilter = EVERY_DEAD_LETTER,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000)] = 20,
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="The next page: dead letters older than this one.")
    ] = None,
    json_: JsonLines = False,
) -> None:
    """List dead letters, the latest first."""
    from tasklib.cli.lookup import full_id
    from tasklib.cli.report import note

    with database.connected() as client:
        place = full_id(client, after) if after else None
        tasks = client.dead_letters(chosen, after=place, limit=limit)
    if json_:
        for task in tasks:
            typer.echo(json_text(task.model_dump(mode="json")))
        return
    _print_tasks(tasks)
    if len(tasks) == limit and sys.stdout.isatty():
        note(f"There may be more: --after {tasks[-1].id}", "dim")


@app.command()
@with_dead_letter_filter
@with_database
def groups(
    database: ChosenDatabase,
    chosen: DeadLetterFilter = EVERY_DEAD_LETTER,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000)] = 20,
    json_: JsonLines = False,
) -> None:
    """Group dead letters by their cause, the most frequent first."""
    with database.connected() as client:
        found = client.dead_letter_groups(chosen, limit=limit)
    titles = ("fingerprint", "tasks", "name", "first", "last", "sample", "error")
    print_found(found, titles, _group_row, as_json=json_, none="no dead letters", numbers={"tasks"})


app.command()(show)


@app.command()
@with_dead_letter_filter
@with_database
def replay(
    database: ChosenDatabase,
    task_ids: AnyIds = None,
    chosen: DeadLetterFilter = EVERY_DEAD_LETTER,
    everything: EveryDeadLetter = False,
    limit: AtMost = None,
    per_second: Annotated[
        float | None, typer.Option(metavar="N", help="The maximum rate, so that they don't overload other systems.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Run dead letters again from the beginning, the oldest first: by id, by group, or all that match.

    Example: tasklib dlq replay --fingerprint 1f3a9c02 --per-second 10
    """
    with database.connected() as client:
        chosen = _with_ids(client, chosen, task_ids, everything)
        found = client.replay_dead_letters(chosen, everything=everything, limit=limit, dry_run=True)
        if found and not dry_run:
            confirm(f"replay {count(len(found), 'dead letter')}", yes=yes or bool(task_ids))
            found = client.replay_dead_letters(chosen, everything=everything, limit=limit, per_second=per_second)
    _print_ids(found, "would replay" if dry_run else "replayed")


@app.command()
@with_dead_letter_filter
@with_database
def purge(
    database: ChosenDatabase,
    task_ids: AnyIds = None,
    chosen: DeadLetterFilter = EVERY_DEAD_LETTER,
    everything: EveryDeadLetter = False,
    limit: AtMost = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete dead letters permanently, the oldest first: by id, by group, or all that match."""
    with database.connected() as client:
        chosen = _with_ids(client, chosen, task_ids, everything)
        found = client.purge_dead_letters(chosen, everything=everything, limit=limit, dry_run=True)
        if found and not dry_run:
            confirm(f"delete {count(len(found), 'dead letter')} for good", yes=yes)
            found = client.purge_dead_letters(chosen, everything=everything, limit=limit)
    _print_ids(found, "would purge" if dry_run else "purged")


def _with_ids(client: Client, chosen: DeadLetterFilter, texts: list[str] | None, everything: bool) -> DeadLetterFilter:
    from tasklib.cli.lookup import full_id

    if not texts:
        refuse_unfiltered(chosen, everything=everything, give="ids, --fingerprint")
    return replace(chosen, ids=[full_id(client, text) for text in texts]) if texts else chosen


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

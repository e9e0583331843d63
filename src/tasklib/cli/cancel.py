"""`tasklib cancel`, `tasklib replay` and `tasklib run-now`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.confirm import DryRun, Yes, confirm
from tasklib.cli.filters import with_task_filter
from tasklib.cli.options import AnyIds, ChosenDatabase, Ids, with_database
from tasklib.observe.formatting import count
from tasklib.states import TaskState
from tasklib.store.filters import EVERY_TASK, TaskFilter

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tasklib.client.clients import Client
    from tasklib.store.control import CancelCounts


@with_task_filter
@with_database
def cancel(
    database: ChosenDatabase,
    task_ids: AnyIds = None,
    chosen: TaskFilter = EVERY_TASK,
    everything: Annotated[bool, typer.Option("--all", help="Every unfinished task.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Cancel tasks by id, or all that match. Waiting tasks are cancelled at once; running ones are requested to stop.

    Example: tasklib cancel --name send_email --since 2h
    """
    by_filter = everything or not chosen.is_everything
    if bool(task_ids) == by_filter:
        raise typer.BadParameter("give ids or filter options; --all for every task.")
    with database.connected() as client:
        if task_ids:
            _cancel_each(client, task_ids, dry_run=dry_run)
        else:
            _cancel_all(client, chosen, everything=everything, dry_run=dry_run, yes=yes)


@with_database
def replay(database: ChosenDatabase, task_ids: Ids) -> None:
    """Run finished tasks again from the beginning. For many dead letters: tasklib dlq replay."""
    with database.connected() as client:
        _each(client, task_ids, client.replay_task, "pending")


@with_database
def run_now(database: ChosenDatabase, task_ids: Ids) -> None:
    """Run tasks that wait for their start time or their retry before that time."""
    with database.connected() as client:
        _each(client, task_ids, client.run_task_now, "due now")


def _each(client: Client, texts: list[str], act: Callable[[UUID], object], becomes: str) -> None:
    from tasklib.cli.lookup import full_id

    for found in [full_id(client, text) for text in texts]:
        act(found)
        typer.echo(f"{found}\t{becomes}")


def _cancel_each(client: Client, texts: list[str], *, dry_run: bool) -> None:
    from tasklib.cli.lookup import full_id
    from tasklib.cli.report import CommandError

    finished = []
    for found in [full_id(client, text) for text in texts]:
        if dry_run:
            typer.echo(f"{found}\twould be cancelled")
            continue
        state = client.cancel_task(found)
        typer.echo(f"{found}\t{'asked to stop' if state == TaskState.RUNNING else state}")
        if state.is_terminal and state != TaskState.CANCELLED:
            finished.append(found)
    if finished:
        raise CommandError(f"{count(len(finished), 'task was', 'tasks were')} finished already.")


def _cancel_all(client: Client, chosen: TaskFilter, *, everything: bool, dry_run: bool, yes: bool) -> None:
    expected = client.cancel_tasks(chosen, everything=everything, dry_run=True)
    if not dry_run and (expected.cancelled or expected.asked):
        confirm(f"cancel {_said(expected)}", yes=yes)
        expected = client.cancel_tasks(chosen, everything=everything)
    typer.echo(f"would cancel {_said(expected)}" if dry_run else f"cancelled {_said(expected, 'asked')}")


def _said(what: CancelCounts, ask: str = "ask") -> str:
    running = f" and {ask} {count(what.asked, 'running one')} to stop" if what.asked else ""
    return f"{count(what.cancelled, 'waiting task')}{running}"

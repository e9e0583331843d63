"""`tasklib list`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.filters import with_task_filter
from tasklib.cli.moments import relative
from tasklib.cli.options import DatabaseUrl, Debug, JsonLines, Schema, connected
from tasklib.formatting import json_text
from tasklib.observe.formatting import last_line, printable, short_id
from tasklib.states import CLAIMABLE, TaskState
from tasklib.store.filters import EVERY_TASK, TaskFilter

if TYPE_CHECKING:
    from rich.text import Text

    from tasklib.client.clients import Client
    from tasklib.client.operations import Settings
    from tasklib.models import Task
    from tasklib.store.pauses import Paused

STATE_STYLES = {
    TaskState.PENDING: "cyan",
    TaskState.RUNNING: "blue",
    TaskState.COMPLETED: "green",
    TaskState.FAILED: "yellow",
    TaskState.CANCELLED: "magenta",
    TaskState.DEAD_LETTER: "bold red",
}


@dataclass(frozen=True)
class FleetState:
    """What decides about waiting tasks besides their rows: thresholds, pauses and the time."""

    settings: Settings
    pauses: Sequence[Paused]
    now: datetime

    @classmethod
    def of(cls, client: Client) -> FleetState:
        return cls(client.settings(), client.pauses(), datetime.now(UTC))

    def effective_priority(self, task: Task) -> int:
        from tasklib.priorities import effective_priority

        return effective_priority(
            task,
            self.now,
            promote_to_medium_after_seconds=self.settings.promote_to_medium_after_seconds,
            promote_to_high_after_seconds=self.settings.promote_to_high_after_seconds,
        )

    def is_paused(self, task: Task) -> bool:
        return task.state in CLAIMABLE and any(p.holds(task.queue, task.name) for p in self.pauses)

    def json(self, task: Task, indent: int | None = None) -> str:
        """The row and what follows from it."""
        from tasklib.tasks.secrets import hidden

        row = {
            **hidden(task.model_dump(mode="json")),
            "effective_priority": self.effective_priority(task),
            "paused": self.is_paused(task),
        }
        return json_text(row, indent=indent)


@with_task_filter
def list_tasks(
    chosen: TaskFilter = EVERY_TASK,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000)] = 20,
    after: Annotated[str | None, typer.Option(metavar="ID", help="The next page: tasks older than this one.")] = None,
    json_: JsonLines = False,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """List tasks, newest first. Without a terminal it prints tab-separated columns with whole ids."""
    from tasklib.cli.lookup import full_id
    from tasklib.cli.report import note

    with connected(database_url, schema) as client:
        tasks = client.list_tasks(chosen, after=full_id(client, after) if after else None, limit=limit)
        fleet = FleetState.of(client)
    if json_:
        for task in tasks:
            typer.echo(fleet.json(task))
    elif not sys.stdout.isatty():
        for task in tasks:
            typer.echo("\t".join(plain_row(task, fleet)))
    elif tasks:
        print_table(tasks, fleet)
        if len(tasks) == limit:
            note(f"There may be more: --after {tasks[-1].id}", "dim")
    else:
        note("no such tasks", "dim")


def plain_row(task: Task, fleet: FleetState) -> tuple[str, ...]:
    """One task for a script: no field has a tab or a line break in it, times are absolute."""
    fields = (
        str(task.id),
        task.name,
        task.state,
        str(task.priority),
        f"{task.retry_count}/{task.max_retries}",
        task.queue,
        _moment(task).astimezone(UTC).isoformat(),
        last_line(task.error),
        str(fleet.effective_priority(task)),
        "paused" if fleet.is_paused(task) else "",
        task.schedule or "",
        task.slot.astimezone(UTC).isoformat() if task.slot else "",
    )
    return tuple(map(printable, fields))


def print_table(tasks: Iterable[Task], fleet: FleetState) -> None:
    """The tasks for a person."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    tasks = list(tasks)
    # Where it gets narrow, the error gives way first: only a column with a ratio does, and only in an expanded table.
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", expand=any(t.error for t in tasks))
    for title in ("id", "name", "state"):
        table.add_column(title, no_wrap=True, max_width=40)
    for title in ("priority", "retries"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("queue", "when"):
        table.add_column(title, no_wrap=True, max_width=24)
    if runs := any(task.schedule for task in tasks):
        table.add_column("slot", no_wrap=True, max_width=48)
    table.add_column("error", overflow="ellipsis", no_wrap=True, ratio=1)
    for task in tasks:
        table.add_row(
            Text(short_id(task.id), "dim"),
            Text(printable(task.name), "bold"),
            styled_state(task, fleet),
            priority(task, fleet),
            f"{task.retry_count}/{task.max_retries}",
            Text(printable(task.queue)),
            when(task, fleet.now),
            *([Text(slot(task))] if runs else []),
            Text(last_line(task.error)),
        )
    Console(highlight=False).print(table)


def slot(task: Task) -> str:
    """`nightly, 2026-03-29 03:00:00+02:00` of a run of a schedule; `nightly, by hand` without a slot."""
    if task.schedule is None:
        return ""
    when = "by hand" if task.slot is None else task.slot.astimezone().isoformat(sep=" ", timespec="seconds")
    return printable(f"{task.schedule}, {when}")


def styled_state(task: Task, fleet: FleetState) -> Text:
    """`pending`, or `pending, paused`."""
    from rich.text import Text

    shown = Text(task.state, STATE_STYLES.get(TaskState(task.state), ""))
    return shown.append(", paused", "bold yellow") if fleet.is_paused(task) else shown


def priority(task: Task, fleet: FleetState) -> str:
    """`0`, or `0 → 100` of a task that waiting has raised."""
    effective = fleet.effective_priority(task)
    return str(task.priority) if effective == task.priority else f"{task.priority} → {effective}"


def when(task: Task, now: datetime) -> str:
    """The time that matters in the task's state."""
    moment = _moment(task)
    match TaskState(task.state):
        case TaskState.PENDING:
            return f"due {relative(moment, now)}"
        case TaskState.FAILED:
            return f"retry {relative(moment, now)}" if moment > now else f"retry due {relative(moment, now)}"
        case TaskState.RUNNING:
            return f"began {relative(moment, now)}"
    return relative(moment, now)


def _moment(task: Task) -> datetime:
    found = {
        TaskState.PENDING: task.scheduled_at,
        TaskState.FAILED: task.next_retry_at,
        TaskState.RUNNING: task.started_at,
    }.get(TaskState(task.state), task.completed_at)
    return found or task.created_at

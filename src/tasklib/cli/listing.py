"""`tasklib list`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple
from uuid import UUID

import typer

from tasklib.cli.filters import with_task_filter
from tasklib.cli.moments import relative
from tasklib.cli.options import ChosenDatabase, JsonLines, with_database
from tasklib.cli.tables import fitted
from tasklib.formatting import json_text
from tasklib.observe.formatting import last_line, printable, short_id
from tasklib.states import CLAIMABLE, TaskState
from tasklib.store.filters import EVERY_TASK, TaskFilter

if TYPE_CHECKING:
    from rich.console import Console
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
        from tasklib.tasks.masking import mask_of_row, masked_marks
        from tasklib.tasks.sealing import shown_error

        row = {
            **masked_marks({**task.model_dump(mode="json"), "error": shown_error(task.error)}, mask_of_row(task)),
            "effective_priority": self.effective_priority(task),
            "paused": self.is_paused(task),
        }
        return json_text(row, indent=indent)


@with_task_filter
@with_database
def list_tasks(
    database: ChosenDatabase,
    search: Annotated[
        str | None,
        typer.Argument(
            metavar="SEARCH",
            show_default=False,
            help="A search as in the dashboard: 'state:failed name:send_* failed:<10m'. Instead of the options below.",
        ),
    ] = None,
    chosen: TaskFilter = EVERY_TASK,
    saved: Annotated[
        str | None, typer.Option("--saved", metavar="NAME", help="The search that is saved under this name.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000)] = 20,
    after: Annotated[str | None, typer.Option(metavar="ID", help="The next page: tasks older than this one.")] = None,
    json_: JsonLines = False,
) -> None:
    """List tasks, newest first. Without a terminal it prints tab-separated columns with whole ids."""
    from tasklib.cli.lookup import full_id
    from tasklib.cli.report import note

    if search is not None and saved is not None:
        raise typer.BadParameter("give a search or --saved, not both.", param_hint="SEARCH")
    if (search is not None or saved is not None) and chosen != EVERY_TASK:
        raise typer.BadParameter(
            "give a search or options, not both: in a search, --state failed is state:failed.", param_hint="SEARCH"
        )
    with database.connected() as client:
        place = full_id(client, after) if after else None
        search = saved_search(client, saved) if saved is not None else search
        if search is None:
            page = ListedPage(client.list_tasks(chosen, after=place, limit=limit))
        else:
            page = found(client, search, place, limit)
        tasks, fleet = page.tasks, FleetState.of(client)
    if json_:
        for task in tasks:
            typer.echo(fleet.json(task))
    elif not sys.stdout.isatty():
        for task in tasks:
            typer.echo("\t".join(plain_row(task, fleet)))
    elif tasks:
        print_table(tasks, fleet)
        if page.looked_at is None and len(tasks) == limit:
            note(f"There may be more: --after {tasks[-1].id}", "dim")
    else:
        note("no such tasks", "dim")
    if page.looked_at is not None:
        note(f"Only the newest {page.looked_at:,} tasks were searched. Older ones: --after {page.older}", "dim")
        if page.index_hint is not None:
            note(f"With this index, all are found: {page.index_hint}", "dim")


class ListedPage(NamedTuple):
    """One page of tasks; `looked_at` if a search ended before it had read all that might match."""

    tasks: list[Task]
    older: UUID | None = None
    looked_at: int | None = None
    index_hint: str | None = None


def saved_search(client: Client, name: str) -> str:
    """The search that is saved under a name."""
    from tasklib.cli.report import CommandError

    for saved in client.saved_searches():
        if saved.name == name:
            return saved.search
    raise CommandError(f"there is no saved search {name!r}; tasklib search list shows them.")


def found(client: Client, search: str, older_than: UUID | None, limit: int) -> ListedPage:
    """The whole rows of what a search finds."""
    from tasklib.client.search_terms import SearchError

    try:
        page = client.search_tasks(search, limit=limit, older_than=older_than)
    except SearchError as e:
        raise typer.BadParameter(f"{e}\n  {printable(search)}\n  {' ' * e.at}^", param_hint="SEARCH") from None
    ids = [task.id for task in page.tasks]
    tasks = client.list_tasks(ids=ids, limit=len(ids)) if ids else []
    return ListedPage(tasks, page.older, page.looked_at, page.index)


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


def print_table(tasks: Sequence[Task], fleet: FleetState) -> None:
    """The tasks for a person."""
    from rich.console import Console
    from rich.text import Text

    runs = any(task.schedule for task in tasks)
    titles = ["id", "name", "state", "priority", "retries", "queue", "when", *(["slot"] if runs else []), "error"]
    rows = [
        [
            Text(short_id(task.id), "dim"),
            Text(printable(task.name), "bold"),
            styled_state(task, fleet),
            Text(priority(task, fleet), justify="right"),
            Text(f"{task.retry_count}/{task.max_retries}", justify="right"),
            Text(printable(task.queue)),
            Text(when(task, fleet.now)),
            *([Text(slot(task))] if runs else []),
            Text(last_line(task.error)),
        ]
        for task in tasks
    ]
    console = Console(highlight=False)
    # Ids and states are never cut: `show` takes the id, and an error that is cut there is whole in `show`.
    least = {"name": 12, "queue": 7, "when": 9, "slot": 10, "error": 12}
    console.print(fitted(titles, rows, console.width, least=least, droppable="priority"))


def print_title(console: Console, name: str, task_id: str, state: Text) -> None:
    """`send_email  0196f2a0-...  failed`; where that is too long, the id has a line of its own, so that it is whole."""
    from rich.text import Text

    title, id_ = Text(printable(name), "bold"), Text(task_id, "dim")
    if console.soft_wrap or title.cell_len + len(task_id) + state.cell_len + 4 <= console.width:
        console.print(Text("  ").join([title, id_, state]))
    else:
        console.print(Text("  ").join([title, state]))
        console.print(id_)


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

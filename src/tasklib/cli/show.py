"""`tasklib show`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.listing import FleetState, print_title, priority, styled_state
from tasklib.cli.moments import local, relative
from tasklib.cli.options import ChosenDatabase, Id, with_database
from tasklib.cli.tables import fitted
from tasklib.formatting import json_text
from tasklib.observe.formatting import count, duration, last_line, printable
from tasklib.states import TaskState
from tasklib.steps import APPROVAL, CHILDREN

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tasklib.client.clients import Client
    from tasklib.models import Task
    from tasklib.store.durable import RecordedStep
    from tasklib.tasks.masking import Mask

_LONGEST_RESULT = 300


@with_database
def show(
    database: ChosenDatabase,
    task_id: Id,
    json_: Annotated[bool, typer.Option("--json", help="The row as JSON.")] = False,
    reveal: Annotated[
        bool,
        typer.Option("--reveal", help="Decrypt sealed values with the keys of this program. Recorded in the audit."),
    ] = False,
) -> None:
    """Show all details of a task: times, arguments, result, attempts, traceback."""
    from tasklib.cli.lookup import full_id
    from tasklib.errors import TaskNotFound

    with database.connected() as client:
        found = full_id(client, task_id)
        task = client.get_task(found)
        if reveal and task is not None:
            task = _revealed(client, task)
        fleet = FleetState.of(client)
        steps = client.steps_of(found) if task is not None and not json_ else []
    if task is None:
        raise TaskNotFound.with_id(found)
    if json_:
        typer.echo(fleet.json(task, indent=2))
        return
    from rich.console import Console

    # A file has no width; what is shortened for a terminal is whole there.
    width = None if sys.stdout.isatty() else 400
    print_task(Console(highlight=False, soft_wrap=width is not None, width=width), task, fleet, steps)


def _revealed(client: Client, task: Task) -> Task:
    """The task with all that was sealed in it, which is on record before it is shown."""
    from tasklib.client.effects import once
    from tasklib.client.sealing import opened_task
    from tasklib.store import audit
    from tasklib.tasks import blobs

    task.kwargs, task.result = (blobs.resolved(client.config, value) for value in (task.kwargs, task.result))
    opened = opened_task(client.config, task)
    by = client.calls.identity.actor
    client.perform(once(audit.record(by=by, action=audit.Action.REVEAL_TASK, target=str(task.id))))
    return opened


def print_task(console: Console, task: Task, fleet: FleetState, steps: Sequence[RecordedStep] = ()) -> None:
    """The task for a person."""
    from rich.text import Text

    from tasklib.tasks.masking import mask_of_row, masked_marks
    from tasklib.tasks.sealing import shown_error

    mask = mask_of_row(task)
    print_title(console, task.name, str(task.id), styled_state(task, fleet))
    console.print(_facts(task, fleet))
    for heading, value in (
        ("arguments", masked_marks(task.kwargs, mask)),
        ("tags", masked_marks(task.tags, mask)),
        ("progress", masked_marks(task.progress, mask)),
    ):
        if value or heading == "arguments":
            _print_json(console, heading, value)
    if task.state == TaskState.COMPLETED:
        _print_json(console, "result", masked_marks(task.result, mask))
    if steps:
        console.print(Text("\nsteps on record", "bold"))
        console.print(_steps(steps, console.width, mask))
    if task.history:
        console.print(Text("\nfailed attempts", "bold"))
        console.print(_attempts(masked_marks(task.history, mask), console.width))
    if task.error:
        console.print(Text("\nerror", "bold"))
        console.print(Text(printable(masked_marks(shown_error(task.error) or "", mask), lines=True), "red"))


def _awaited(task: Task) -> str:
    """What a durable task waits for."""
    if task.state != TaskState.PENDING or task.awaited_signals is None:
        return ""
    if not task.awaited_signals:
        return "the end of its sleep"
    if CHILDREN in task.awaited_signals:
        return "the tasks that it gathers"
    asked = [name.removeprefix(APPROVAL) for name in task.awaited_signals if name.startswith(APPROVAL)]
    what, names = ("the approval", asked) if asked else ("the signal", task.awaited_signals)
    return f"{what} {' or '.join(map(repr, names))}"


def _facts(task: Task, fleet: FleetState) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in _lines(task, fleet):
        grid.add_row(name, _text(value))
    return grid


def _lines(task: Task, fleet: FleetState) -> list[tuple[str, str]]:
    now = fleet.now

    def at(moment: datetime | None) -> str:
        return f"{local(moment)}  ({relative(moment, now)})" if moment else ""

    policy = f"{task.retry_count} of {count(task.max_retries, 'retry', 'retries')} used"
    if task.timeout_seconds:
        policy += f", timeout {duration(task.timeout_seconds)}"
    if task.crash_count:
        policy += f", {count(task.crash_count, 'crash', 'crashes')}"
    waiting = task.state in (TaskState.PENDING, TaskState.FAILED)
    took = task.started_at and task.completed_at and (task.completed_at - task.started_at).total_seconds()
    key = f"{task.idempotency_key}, until {at(task.idempotency_expires_at)}" if task.idempotency_key else ""
    lines = [
        ("queue", f"{task.queue}, priority {priority(task, fleet)}"),
        ("requires", ", ".join(task.required_capabilities)),
        ("version", "" if task.payload_version is None else f"{task.payload_version} of its arguments"),
        ("policy", policy),
        ("created", at(task.created_at)),
        ("scheduled", at(task.scheduled_at) if task.scheduled_at != task.created_at or waiting else ""),
        ("waits for", _awaited(task)),
        ("next retry", at(task.next_retry_at) if task.state == TaskState.FAILED else ""),
        ("started", at(task.started_at)),
        ("ended", at(task.completed_at) + (f", took {duration(took)}" if isinstance(took, float) else "")),
        ("cancel asked", at(task.cancel_requested_at)),
        ("worker", f"{task.worker_id or ''}"),
        ("lease", f"token {task.lease_token}, until {at(task.locked_until)}" if task.locked_until else ""),
        ("once per key", key),
        ("merge key", f"{task.merge_key}, while {task.merge_while}" if task.merge_key else ""),
        ("schedule", (task.schedule or "") + (f", slot {at(task.slot)}" if task.slot else "")),
        ("submitted by", task.submitted_by or ""),
        ("trace", task.trace_id),
    ]
    return [(name, value) for name, value in lines if value]


def _steps(steps: Sequence[RecordedStep], width: int, mask: Mask | None) -> Table:
    from tasklib.tasks.masking import masked_marks

    rows = []
    for step in steps:
        stored = json.loads(step.result)
        result = "none in time" if "timed_out" in stored else json_text(masked_marks(stored.get("value"), mask))
        moment = f"{step.recorded_at.astimezone():%Y-%m-%d %H:%M:%S}"
        rows.append([*map(_text, (step.id.kind.value, step.id.name, moment, result[:_LONGEST_RESULT]))])
    return fitted(("kind", "name", "recorded", "result"), rows, width, least={"name": 16, "result": 12}, widest=80)


def _attempts(history: list[dict[str, Any]], width: int) -> Table:
    rows = []
    for entry in history:
        began, ended = _time(entry.get("started_at")), _time(entry.get("ended_at"))
        cells = (
            str(entry.get("attempt", "")),
            str(entry.get("outcome", "")),
            f"{began.astimezone():%Y-%m-%d %H:%M:%S}" if began else "",
            duration((ended - began).total_seconds()) if began and ended else "",
            str(entry.get("worker") or ""),
            last_line(str(entry.get("error") or "")),
        )
        rows.append([*map(_text, cells)])
    titles = ("attempt", "outcome", "began", "took", "worker", "error")
    return fitted(titles, rows, width, least={"worker": 8, "error": 16}, widest=80)


def _time(text: object) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None


def _print_json(console: Console, heading: str, value: Any) -> None:
    from rich.syntax import Syntax
    from rich.text import Text

    console.print(Text(f"\n{heading}", "bold"))
    text = json_text(value, indent=2)
    if console.is_terminal:
        console.print(Syntax(text, "json", theme="ansi_dark", background_color="default", word_wrap=True))
    else:
        console.print(Text(text))


def _text(value: str) -> Text:
    from rich.text import Text

    return Text(printable(value))

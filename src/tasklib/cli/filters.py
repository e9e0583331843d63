"""The options that say which tasks, or which dead letters: declared here once, and read into a filter."""

from __future__ import annotations

from typing import Annotated

import typer

from tasklib.cli.moments import past_moment
from tasklib.cli.option_groups import option_group
from tasklib.cli.pairs import pairs
from tasklib.states import TaskState
from tasklib.store.filters import DeadLetterFilter, TaskFilter

Name = Annotated[str | None, typer.Option("--name", metavar="NAME")]
Queue = Annotated[str | None, typer.Option("--queue", metavar="QUEUE")]
EveryDeadLetter = Annotated[bool, typer.Option("--all", help="Every dead letter.")]


def _tasks(
    state: Annotated[
        list[TaskState] | None, typer.Option(show_default=False, help="Only tasks in this state; repeatable.")
    ] = None,
    name: Name = None,
    queue: Queue = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", show_default=False, help="Only with this tag; repeatable.")
    ] = None,
    worker: Annotated[str | None, typer.Option(metavar="ID", help="Only tasks that this worker runs now.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Created at or after: ISO 8601, or 2h for two hours ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Created before.")] = None,
) -> TaskFilter:
    return TaskFilter(
        state=state or None,
        name=name,
        queue=queue,
        tags=pairs("--tag", tag) or None,
        worker=worker,
        created_after=past_moment("--since", since),
        created_before=past_moment("--until", until),
    )


def _dead_letters(
    fingerprint: Annotated[
        str | None,
        typer.Option("--fingerprint", metavar="F", help="A fingerprint of `tasklib dlq groups`, or the start of it."),
    ] = None,
    name: Name = None,
    queue: Queue = None,
    error: Annotated[
        str | None, typer.Option("--error", metavar="TEXT", help="With this text in the traceback, ignoring case.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Dead letters since: ISO 8601, or 2h for two hours ago."),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Dead letters before.")] = None,
) -> DeadLetterFilter:
    return DeadLetterFilter(
        fingerprint=fingerprint,
        name=name,
        queue=queue,
        error=error,
        since=past_moment("--since", since),
        until=past_moment("--until", until),
    )


def refuse_unfiltered(chosen: DeadLetterFilter, *, everything: bool, give: str) -> None:
    """A mass change of all dead letters must be meant: `--all`. `give`: the options to suggest first."""
    if chosen.is_everything and not everything:
        raise typer.BadParameter(f"give {give} or other filter options; --all for every dead letter.")


with_task_filter = option_group("chosen", _tasks)
with_dead_letter_filter = option_group("chosen", _dead_letters)

"""The options that say which tasks, or which dead letters: declared here once, and read into a filter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from tasklib.cli.moments import past_moment
from tasklib.cli.pairs import pairs
from tasklib.states import TaskState
from tasklib.store.filters import DeadLetterFilter, TaskFilter

Command = Callable[..., None]
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


def _with_options_of(read: Callable[..., Any]) -> Callable[[Command], Command]:
    """Put the options of `read` in the place of a command's parameter `chosen`, which gets what it returns.

    Typer learns a command's options from its signature, so the command gets one with both.
    """
    options = _parameters(read)

    def decorate(command: Command) -> Command:
        parameters: dict[str, inspect.Parameter] = {}
        for name, parameter in _parameters(command).items():
            parameters |= options if name == "chosen" else {name: parameter}

        @functools.wraps(command)
        def run(**values: Any) -> None:
            chosen = read(**{name: values.pop(name) for name in options})
            command(chosen=chosen, **values)

        vars(run)["__signature__"] = inspect.Signature(list(parameters.values()))
        run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
        return run

    return decorate


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    types = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    keyword = inspect.Parameter.KEYWORD_ONLY
    return {name: p.replace(annotation=types[name], kind=keyword) for name, p in parameters.items()}


def refuse_unfiltered(chosen: DeadLetterFilter, *, everything: bool, give: str) -> None:
    """A mass change of all dead letters must be meant: `--all`. `give`: the options to suggest first."""
    if chosen.is_everything and not everything:
        raise typer.BadParameter(f"give {give} or other filter options; --all for every dead letter.")


with_task_filter = _with_options_of(_tasks)
with_dead_letter_filter = _with_options_of(_dead_letters)

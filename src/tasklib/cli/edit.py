"""`tasklib edit`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tasklib.cli.moments import future_moment
from tasklib.cli.options import ChosenDatabase, usage_errors, with_database
from tasklib.cli.pairs import mapping, pairs
from tasklib.cli.submit import as_declared, client_with, priority_from


@with_database
def edit(
    database: ChosenDatabase,
    task_id: Annotated[
        str, typer.Argument(metavar="ID", help="The id of the task, or the end of it.", show_default=False)
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            show_default=False,
            help="Arguments to change; the others stay. A value that is JSON means that, any other is a string.",
        ),
    ] = None,
    json_: Annotated[
        str | None, typer.Option("--json", metavar="OBJECT", help="All arguments as one JSON object; - reads stdin.")
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            "--module", "-m", metavar="MODULE", show_default=False, help="Import this module to validate the arguments."
        ),
    ] = None,
    queue: Annotated[str | None, typer.Option(metavar="QUEUE", help="Move it to this queue.")] = None,
    priority: Annotated[str | None, typer.Option(metavar="P", help="-10 to 100, or low, medium, high.")] = None,
    delay: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Run it no sooner than after this time from now.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Run it no sooner than at this time (ISO 8601).")
    ] = None,
    max_retries: Annotated[int | None, typer.Option(metavar="N")] = None,
    timeout: Annotated[int | None, typer.Option(metavar="SECONDS", help="How long an attempt may take.")] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", show_default=False, help="Set this tag; the others stay. Repeatable."),
    ] = None,
    capability: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", show_default=False, help="All capabilities a worker must have; repeatable."),
    ] = None,
) -> None:
    """Change a task that waits. If a worker took it already, nothing is changed.

    Example: tasklib edit 691e1a85 to=b@example.com --queue slow
    """
    from tasklib.cli.lookup import full_id
    from tasklib.errors import TaskNotFound

    if json_ is not None and arguments:
        raise typer.BadParameter("give the arguments as key=value or as --json, not both.", param_hint="--json")
    with client_with(module or [], database) as client:
        found = full_id(client, task_id)
        task = client.get_task(found)
        if task is None:
            raise TaskNotFound.with_id(found)
        kwargs: Any = None
        if json_ is not None:
            kwargs = mapping("--json", typer.get_text_stream("stdin").read() if json_ == "-" else json_)
        elif arguments:
            kwargs = {**task.kwargs, **pairs("KEY=VALUE", arguments)}
        if kwargs is not None and module:
            kwargs = as_declared(task.name, kwargs, arguments or [])
        options: dict[str, Any] = {
            "queue": queue,
            "priority": priority_from(priority),
            "delay_seconds": delay,
            "scheduled_at": future_moment("--at", at),
            "max_retries": max_retries,
            "timeout_seconds": timeout,
            "tags": {**task.tags, **pairs("--tag", tag)} if tag else None,
            "required_capabilities": capability or None,
        }
        with usage_errors():
            state = client.edit_task(found, kwargs=kwargs, **options)
        typer.echo(f"{found}\t{state}")

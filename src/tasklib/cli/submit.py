"""`tasklib submit` and `tasklib wait`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.moments import future_moment
from tasklib.cli.options import ChosenDatabase, Id, usage_errors, with_database
from tasklib.cli.pairs import mapping, pairs
from tasklib.formatting import json_text

if TYPE_CHECKING:
    from uuid import UUID

    from tasklib.client.clients import Client


@with_database
def submit(
    database: ChosenDatabase,
    name: Annotated[str, typer.Argument(help="The task's name.", show_default=False)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            show_default=False,
            help="The task's arguments. A value that is JSON means that, any other is a string; with --module it is "
            "also a string where the function wants one.",
        ),
    ] = None,
    json_: Annotated[
        str | None, typer.Option("--json", metavar="OBJECT", help="The arguments as one JSON object; - reads stdin.")
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            "--module",
            "-m",
            metavar="MODULE",
            show_default=False,
            help="Import this module, validate the arguments and apply the decorator's options.",
        ),
    ] = None,
    delay: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Run it no sooner than after this time.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Run it no sooner than at this time (ISO 8601).")
    ] = None,
    priority: Annotated[str | None, typer.Option(metavar="P", help="-10 to 100, or low, medium, high.")] = None,
    queue: Annotated[str | None, typer.Option(metavar="QUEUE")] = None,
    max_retries: Annotated[int | None, typer.Option(metavar="N")] = None,
    timeout: Annotated[int | None, typer.Option(metavar="SECONDS", help="How long an attempt may take.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", show_default=False, help="Repeatable.")] = None,
    capability: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", show_default=False, help="A capability that the worker must have; repeatable."),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="A second submission with this key returns the first task.")
    ] = None,
    unique: Annotated[
        str | None,
        typer.Option(metavar="WHILE", help="One task per merge key while it is 'pending', or 'unfinished'."),
    ] = None,
    debounce: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Run it this long after the last submission with its merge key."),
    ] = None,
    throttle: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="For this long, a submission with its merge key returns this task."),
    ] = None,
    merge_key: Annotated[str | None, typer.Option(metavar="KEY", help="The merge key. Default: all arguments.")] = None,
    on_duplicate: Annotated[
        str | None, typer.Option(metavar="HOW", help="What to do with the other task: return, replace or raise.")
    ] = None,
    max_wait: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="With --debounce: run it at the latest this long after the first."),
    ] = None,
    share: Annotated[
        str | None, typer.Option(metavar="SHARE", help="The share it belongs to: shares with due tasks take turns.")
    ] = None,
    serial_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Tasks of its queue with this key run one at a time, in order.")
    ] = None,
    payload_version: Annotated[
        int | None, typer.Option(metavar="VERSION", help="The version of the arguments, if the function has versions.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the task, and print its result instead of its id.")
    ] = False,
    timeout_wait: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="How long to wait. The task is not stopped.")
    ] = None,
) -> None:
    """Submit a task and print its id.

    Example: tasklib submit send_email to=a@example.com --delay 60
    """
    kwargs = _arguments(arguments, json_)
    options: dict[str, Any] = {
        "delay_seconds": delay,
        "scheduled_at": future_moment("--at", at),
        "priority": priority_from(priority),
        "queue": queue,
        "max_retries": max_retries,
        "timeout_seconds": timeout,
        "tags": pairs("--tag", tag) or None,
        "required_capabilities": capability or None,
        "idempotency_key": idempotency_key,
        "unique": unique,
        "debounce": debounce,
        "throttle": throttle,
        "merge_key": merge_key,
        "on_duplicate": on_duplicate,
        "max_wait": max_wait,
        "share": share,
        "serial_key": serial_key,
        "payload_version": payload_version,
    }
    with client_with(module or [], database) as client:
        if module:
            _require_registered(name, module)
        typed = as_declared(name, kwargs, arguments or []) if module else kwargs
        with usage_errors():
            task_id = client.submit_task(name, kwargs=typed, registered_elsewhere=not module, **options)
        if not module:
            _say_what_is_unknown(client, name, options)
        if wait:
            _print_result(_waited_for(client, task_id, timeout_wait))
        else:
            typer.echo(str(task_id))


@with_database
def wait(
    database: ChosenDatabase,
    task_id: Id,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="How long to wait. The task is not stopped.")
    ] = None,
) -> None:
    """Wait for a task and print its result as JSON. If it failed, print its traceback and exit with 1."""
    from tasklib.cli.lookup import full_id

    with database.connected() as client:
        _print_result(client.perform(client.calls.wait_for_json(full_id(client, task_id), timeout)))


def client_with(modules: list[str], database: ChosenDatabase) -> Client:
    """A client, once the modules are imported."""
    from tasklib.cli.worker import load_with_database
    from tasklib.client.clients import Client

    if not modules:
        return database.connected()
    _, config = load_with_database(modules, database.url, database.schema)
    return Client(config)


def _waited_for(client: Client, task_id: UUID, timeout: float | None) -> Any:
    from tasklib.cli.report import note

    try:
        return client.perform(client.calls.wait_for_json(task_id, timeout))
    except KeyboardInterrupt:
        note(
            f"task {task_id} is still queued or running. Wait for it: tasklib wait {task_id}. "
            f"Stop it: tasklib cancel {task_id}"
        )
        raise typer.Exit(130) from None


def as_declared(name: str, kwargs: Mapping[str, Any], words: Iterable[str]) -> Mapping[str, Any]:
    """Arguments as the function declares them. What was written `to=1` is the text "1" where 1 doesn't fit."""
    from tasklib.client.call_arguments import typed
    from tasklib.errors import TaskExecutionError

    texts = {key: text for key, _, text in (word.partition("=") for word in words)}
    given = dict(kwargs)
    while True:
        try:
            return typed(name, given)
        except TaskExecutionError as e:
            if e.field not in texts or given.get(e.field) == texts[e.field]:
                raise
            given[e.field] = texts[e.field]


def _say_what_is_unknown(client: Client, name: str, options: Mapping[str, Any]) -> None:
    """Without its module nothing is known of the function but what live workers say: whether they have its name.

    If none has it, it is misspelt, or its worker is yet to come. If one has it, its decorator may say more than is
    known here.
    """
    import difflib

    from tasklib.cli.report import note

    live = [w for w in client.workers() if w.status != "dead"]
    known = {n for w in live for n in w.names or ()}
    if live and not any(w.knows(name) for w in live):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        note(f"warning: no live worker knows {name!r}.{hint} The task waits until one does.", "yellow")
    elif live and any(options[option] is None for option in ("queue", "max_retries", "timeout_seconds", "priority")):
        note(
            f"note: the decorator's options of {name!r} (queue, retries, timeout, ...) are unknown here and were not "
            "applied. Name its module with -m MODULE, or give the options."
        )


def _require_registered(name: str, modules: list[str]) -> None:
    import difflib

    from tasklib.errors import TaskNotFound
    from tasklib.tasks import registry

    if registry.functions.get(name) is None:
        near = difflib.get_close_matches(name, registry.names(), n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(registry.names())}."
        raise TaskNotFound(f"no task named {name!r} in {', '.join(modules)}. {hint}", name=name)


def _arguments(words: list[str] | None, text: str | None) -> dict[str, Any]:
    if text is None:
        return pairs("KEY=VALUE", words)
    if words:
        raise typer.BadParameter("give the arguments as key=value or as --json, not both.", param_hint="--json")
    return mapping("--json", typer.get_text_stream("stdin").read() if text == "-" else text)


def priority_from(text: str | None) -> int | str | None:
    """A number, or the name of a level."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


def _print_result(value: Any) -> None:
    typer.echo(json_text(value))

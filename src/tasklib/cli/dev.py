"""`tasklib dev`: a database, its tables and a worker that follows your edits, in one command."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.options import (
    Capabilities,
    Concurrency,
    DatabaseUrl,
    Debug,
    LogFormat,
    LogFormats,
    Modules,
    PollInterval,
    Queues,
    Quiet,
    Schema,
    Verbose,
    configured,
)

if TYPE_CHECKING:
    from tasklib.embedded import EmbeddedPostgres

GRACE_SECONDS = 5
"""How long running tasks may go on when the code changes, unless TASKLIB_SHUTDOWN_GRACE_SECONDS says otherwise."""


def dev(
    modules: Modules,
    concurrency: Concurrency = 10,
    queue: Queues = None,
    capability: Capabilities = None,
    poll_interval: PollInterval = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    log_format: LogFormats = LogFormat.AUTO,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The directory in which the embedded PostgreSQL keeps its data between runs."),
    ] = None,
    port: Annotated[int, typer.Option(metavar="PORT", help="The port of the dashboard, if it is free.")] = 8765,
    dashboard: Annotated[bool, typer.Option("--dashboard/--no-dashboard", help="Serve the dashboard.")] = True,
    database_url: DatabaseUrl = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """Start an embedded PostgreSQL, the dashboard, and a worker that restarts when your code changes.

    With --database-url, TASKLIB_DATABASE_URL or DATABASE_URL, that database is used instead of the embedded one.

    Example: tasklib dev tasks.py
    """
    from tasklib.cli import dev_server
    from tasklib.cli.supervisor import Supervisor
    from tasklib.cli.watch import FileWatch, directories_of
    from tasklib.config import url_in
    from tasklib.migrations import migrate

    watch = FileWatch(directories_of(modules))
    database_url = database_url or url_in(os.environ)
    with _database(database_url, data_dir) as url:
        config = configured(url, schema)
        migrate(config)
        _greet(url, schema, watch.roots, embedded=not database_url)
        options = _worker_options(concurrency, queue, capability, poll_interval, verbose, quiet, log_format, debug)
        environment = {"TASKLIB_SHUTDOWN_GRACE_SECONDS": str(GRACE_SECONDS)} | os.environ
        # The URL goes by the environment: the command line of a process is public.
        environment |= {"TASKLIB_DATABASE_URL": url} | ({"TASKLIB_SCHEMA": schema} if schema else {})
        command = [sys.executable, "-m", "tasklib", "worker", *options, "--", *modules]
        with dev_server.dashboard(config, port) if dashboard else nullcontext():
            asyncio.run(Supervisor(command, environment, watch).run())


@contextmanager
def _database(database_url: str | None, data_dir: Path | None) -> Iterator[str]:
    """The database that was given, or the embedded one for as long as it is needed."""
    if database_url:
        yield database_url
        return
    from tasklib.cli.report import note
    from tasklib.embedded import EmbeddedPostgres, default_data_dir

    directory = data_dir or default_data_dir()
    note(f"PostgreSQL is starting, with its data in {directory}", "dim")
    with EmbeddedPostgres(directory) as server:
        yield _database_of_this_directory(server)


def _database_of_this_directory(server: EmbeddedPostgres) -> str:
    """One database per project: tasks of one must not run in another that has a function of the same name."""
    import hashlib

    import psycopg

    here = Path.cwd()
    readable = re.sub(r"[^a-z0-9]+", "_", here.name.lower()).strip("_")[:40]
    name = f"{readable}_{hashlib.sha256(str(here).encode()).hexdigest()[:6]}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        there = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone()
    return server.url(name) if there else server.create_database(name)


def _greet(url: str, schema: str | None, roots: list[Path], *, embedded: bool) -> None:
    from rich.text import Text

    from tasklib.cli.report import stderr
    from tasklib.db.connect import address

    console = stderr()
    if embedded:
        # This password guards nothing but this local server; without it the line would be of no use.
        console.print(Text("In your application's shell:", "bold"))
        console.print(Text(f"  export TASKLIB_DATABASE_URL={url}", "cyan"))
        if schema:
            console.print(Text(f"  export TASKLIB_SCHEMA={schema}", "cyan"))
    else:
        console.print(Text(f"database {address(url)}" + (f", schema {schema}" if schema else "")))
    console.print(Text(f"Watching the Python files in {', '.join(map(str, roots))}. Ctrl-C stops everything.", "dim"))


def _worker_options(
    concurrency: int,
    queues: list[str] | None,
    capabilities: list[str] | None,
    poll_interval: float | None,
    verbose: bool,
    quiet: bool,
    log_format: LogFormat,
    debug: bool,
) -> list[str]:
    options = ["--concurrency", str(concurrency), "--log-format", log_format.value]
    for queue in queues or ():
        options += ["--queue", queue]
    for capability in capabilities or ():
        options += ["--capability", capability]
    if poll_interval is not None:
        options += ["--poll-interval", str(poll_interval)]
    flags = {"--verbose": verbose, "--quiet": quiet, "--debug": debug}
    return options + [flag for flag, given in flags.items() if given]

"""`tasklib worker`: run tasks until stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.each_shard import each_shard
from tasklib.cli.options import (
    Capabilities,
    Concurrency,
    DatabaseUrl,
    DatabaseUrlFile,
    Debug,
    LogFormat,
    LogFormats,
    ModulesOfHost,
    PollInterval,
    Queues,
    Quiet,
    Schema,
    StartupTimeout,
    Verbose,
    configured,
    url_of,
)
from tasklib.errors import ConfigError

if TYPE_CHECKING:
    from tasklib.cli.loading import Loaded
    from tasklib.config import Config
    from tasklib.events import Event
    from tasklib.worker.worker import Worker


def worker(
    context: typer.Context,
    modules: ModulesOfHost = None,
    concurrency: Concurrency = 10,
    processes: Annotated[
        int,
        typer.Option(
            "--processes", "-p", min=1, metavar="N", help="The number of worker processes, each with its own slots."
        ),
    ] = 1,
    queue: Queues = None,
    capability: Capabilities = None,
    shard: Annotated[
        list[int] | None,
        typer.Option(
            "--shard",
            min=0,
            metavar="N",
            show_default=False,
            help="Serve only the shard of this number; repeatable. Default: all.",
        ),
    ] = None,
    poll_interval: PollInterval = None,
    burst: Annotated[bool, typer.Option("--burst", help="Stop when no task is due and none is running.")] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port", help="Serve Prometheus metrics of this worker on this port; of others on the next ones."
        ),
    ] = None,
    metrics_host: Annotated[str, typer.Option("--metrics-host", help="The address for --metrics-port.")] = "127.0.0.1",
    health_port: Annotated[
        int | None,
        typer.Option(
            "--health-port",
            min=0,
            max=65535,
            help="Serve /health/live and /health/ready of this worker on this port; of others on the next ones.",
        ),
    ] = None,
    health_host: Annotated[str, typer.Option("--health-host", help="The address for --health-port.")] = "127.0.0.1",
    migrate: Annotated[bool, typer.Option("--migrate", help="Run `tasklib migrate` first.")] = False,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Work through a TaskLib server instead of a database. Needs TASKLIB_TOKEN."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file with the server's token. Default: the variable TASKLIB_TOKEN."),
    ] = None,
    startup_timeout: StartupTimeout = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    log_format: LogFormats = LogFormat.AUTO,
    database_url: DatabaseUrl = None,
    database_url_file: DatabaseUrlFile = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """Run tasks. SIGTERM or Ctrl-C lets running tasks finish; a second one releases them at once.

    Example: tasklib worker app.tasks --concurrency 20 --queue mail
    """
    from tasklib.cli.init_process import leave_process_1

    leave_process_1()
    database_url = url_of(database_url, database_url_file)
    if processes > 1:
        if database_url:
            os.environ["TASKLIB_DATABASE_URL"] = database_url  # the command line of a process is public
        raise typer.Exit(_run_processes(context, processes))
    from tasklib.cli.processes import end_with_supervisor, said_to_supervisor
    from tasklib.cli.running import run
    from tasklib.worker.worker import Worker

    if startup_timeout is not None:
        os.environ["TASKLIB_STARTUP_TIMEOUT_SECONDS"] = str(startup_timeout)
    with said_to_supervisor():
        loaded, config = _loaded(modules or [], database_url, schema, server)
    end_with_supervisor()
    if config is not None and startup_timeout is not None:
        config = config.with_changes(startup_timeout_seconds=startup_timeout)
    if migrate:
        if server:
            raise typer.BadParameter("--migrate needs a database, which a worker with --server doesn't have.")
        from tasklib.migrations import migrate as bring_up_to_date

        assert config is not None
        for _, one in each_shard(config):
            _wait_for_database(one)
            bring_up_to_date(one)
    made = Worker(
        config,
        server=server,
        token=_token_in(token_file) if token_file else None,
        concurrency=concurrency,
        queues=queue or None,
        capabilities=capability or (),
        names=loaded.names,
        poll_interval_seconds=poll_interval,
        modules=loaded.modules,
        burst=burst,
        shards=shard or None,
    )
    made.events.subscribe(observer(log_format, verbose=verbose, quiet=quiet), routine=not quiet)
    with _metrics_of(made, metrics_port, metrics_host), _health_of(made, health_port, health_host):
        run(made)


def _run_processes(context: typer.Context, count: int) -> int:
    """The same command in several processes, each with its share of what can't be shared."""
    import asyncio

    from tasklib.cli.processes import Processes

    options = _as_words(
        context, without=("processes", "modules", "metrics_port", "health_port", "database_url", "database_url_file")
    )
    commands = [
        [
            *(*_this_program(), "worker", *options),
            *_ports(context, number),
            *("--", *(context.params["modules"] or ())),
        ]
        for number in range(count)
    ]
    return asyncio.run(Processes(commands, os.environ).run())


def _ports(context: typer.Context, number: int) -> list[str]:
    """The ports of one of several processes: those that were given, and the next ones."""
    given = {"--metrics-port": context.params["metrics_port"], "--health-port": context.params["health_port"]}
    return [word for option, port in given.items() if port is not None for word in (option, str(port + number))]


def _this_program() -> list[str]:
    """What comes before `worker` in the command line: `python -m tasklib`, or `python manage.py tasklib`."""
    import sys

    from tasklib.cli.host import host

    if host() is None:
        return [sys.executable, "-m", "tasklib"]
    if "worker" not in sys.argv:
        raise typer.BadParameter("--processes needs a command line of its own: manage.py tasklib worker ...")
    return [sys.executable, *sys.argv[: sys.argv.index("worker")]]


def _as_words(context: typer.Context, without: Sequence[str]) -> list[str]:
    """The options of a command that were given, as they are written."""
    words: list[str] = []
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if option.name in without or value is None or value is False:
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            words += [option.opts[0]] if one is True else [option.opts[0], str(getattr(one, "value", one))]
    return words


def _wait_for_database(config: Config) -> None:
    import asyncio

    from tasklib.cli.report import note
    from tasklib.db.startup import wait_for_database

    asyncio.run(wait_for_database(config, lambda why: note(f"waiting for the database: {why}", "yellow")))


def _metrics_of(worker: Worker, port: int | None, host: str) -> AbstractContextManager[Any]:
    if port is None:
        return nullcontext()
    try:
        from tasklib.metrics.exposition import exposed
    except ImportError:
        raise ConfigError("--metrics-port needs prometheus-client: pip install 'tasklib-pg[server]'") from None
    return exposed(worker, port, host)


def _health_of(worker: Worker, port: int | None, host: str) -> AbstractContextManager[Any]:
    if port is None:
        return nullcontext()
    from tasklib.observe.health import served

    return served(worker.events, port, host)


def _loaded(
    modules: list[str], database_url: str | None, schema: str | None, server: str | None
) -> tuple[Loaded, Config | None]:
    if server is None:
        return load_with_database(modules, database_url, schema)
    from tasklib.cli.loading import load_or_discover

    return load_or_discover(modules), None


def _token_in(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as e:
        raise typer.BadParameter(f"the token can't be read from {file}: {e}.") from None


def load_with_database(modules: list[str], database_url: str | None, schema: str | None) -> tuple[Loaded, Config]:
    """Import the tasks with a database at hand, as they may submit others.

    Without --database-url and TASKLIB_DATABASE_URL, the database is the one that the modules give to tasklib.init().
    """
    from tasklib.cli.loading import load_or_discover as load
    from tasklib.client.default import configured as configured_by_modules
    from tasklib.client.default import init

    if database_url:
        # Also for child processes, which make their own connections.
        os.environ["TASKLIB_DATABASE_URL"] = database_url
    if schema:
        os.environ["TASKLIB_SCHEMA"] = schema
    if not database_url:
        loaded = load(modules)
        config = configured_by_modules() or configured(None, schema)  # which raises what a command should say
        return loaded, config.with_changes(schema=schema) if schema else config
    config = init(configured(database_url, schema))
    return load(modules), config


def observer(log_format: LogFormat, *, verbose: bool, quiet: bool) -> Callable[[Event], None]:
    """The output of the worker: readable lines in a terminal, log lines otherwise."""
    import logging
    import sys

    from tasklib.observe.logs import LogLines, log_to
    from tasklib.observe.task_logging import configure_worker_logging

    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    if log_format is not LogFormat.JSON and sys.stderr.isatty():
        from tasklib.observe.terminal import LastingConsole, TerminalView

        configure_worker_logging(as_json=None, level=level)
        return TerminalView(LastingConsole(stderr=True, highlight=False), verbose=verbose, quiet=quiet)
    as_json = log_format is not LogFormat.HUMAN
    configure_worker_logging(as_json=as_json, level=level)
    logger: Any = log_to(sys.stderr, as_json=as_json, level=level)
    return LogLines(logger)

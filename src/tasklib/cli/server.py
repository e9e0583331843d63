"""`tasklib server`: the HTTP API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.options import (
    DatabaseUrl,
    DatabaseUrlFile,
    Debug,
    LogFormat,
    LogFormats,
    Quiet,
    Schema,
    StartupTimeout,
    configured,
    url_of,
)

if TYPE_CHECKING:
    from tasklib.config import Config


def server(
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="The address to serve on. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="The port. Default: 8765.")] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            "--module",
            "-m",
            metavar="MODULE",
            show_default=False,
            help="Validate the arguments of this module's tasks; repeatable.",
        ),
    ] = None,
    no_auth: Annotated[
        bool,
        typer.Option(
            "--no-auth", help="Require no token; on this machine only, and only until the first token is created."
        ),
    ] = False,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve HTTPS with this certificate (PEM).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's private key (PEM).")] = None,
    public_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The URL for browsers, if a proxy terminates TLS: https://...")
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST", show_default=False, help="Accept only requests with this Host header; repeatable."
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS", show_default=False, help="Trust the X-Forwarded headers of this proxy; repeatable."
        ),
    ] = None,
    max_body_bytes: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Refuse larger bodies. Default: 2 MiB.")
    ] = None,
    rate_limit: Annotated[
        float | None,
        typer.Option(metavar="N", help="The maximum rate of requests per second for each token. Default: unlimited."),
    ] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard/--no-dashboard", help="Serve the dashboard.")] = True,
    lead: Annotated[
        bool, typer.Option("--lead/--no-lead", help="Take part in the election of the leader, as workers do.")
    ] = True,
    startup_timeout: StartupTimeout = None,
    quiet: Quiet = False,
    log_format: LogFormats = LogFormat.AUTO,
    database_url: DatabaseUrl = None,
    database_url_file: DatabaseUrlFile = None,
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """Serve the HTTP API. On SIGTERM or Ctrl-C it finishes its current requests and ends.

    Example: tasklib server --host 0.0.0.0 --module app.tasks --tls-certificate server.pem
    """
    config, modules = _loaded(module, url_of(database_url, database_url_file), schema)
    if startup_timeout is not None:
        config = config.with_changes(startup_timeout_seconds=startup_timeout)
    _configure_logging(log_format, quiet=quiet)
    _serve(
        config,
        modules,
        host=host,
        port=port,
        no_auth=True if no_auth else None,
        tls_certificate=str(tls_certificate) if tls_certificate else None,
        tls_key=str(tls_key) if tls_key else None,
        public_url=public_url,
        allowed_hosts=tuple(allowed_host) if allowed_host else None,
        trusted_proxies=tuple(trusted_proxy) if trusted_proxy else None,
        max_body_bytes=max_body_bytes,
        rate_limit_per_second=rate_limit,
        dashboard=None if dashboard else False,
        lead=None if lead else False,
    )


def _loaded(modules: list[str] | None, database_url: str | None, schema: str | None) -> tuple[Config, tuple[str, ...]]:
    """The configuration, and the modules that were imported."""
    import os

    from tasklib.cli.worker import load_with_database

    modules = modules or [m for m in os.environ.get("TASKLIB_SERVER_MODULES", "").split(",") if m]
    if not modules:
        return configured(database_url, schema), ()
    loaded, config = load_with_database(modules, database_url, schema)
    return config, loaded.modules


def _serve(config: Config, modules: tuple[str, ...], **given: Any) -> None:
    import asyncio

    from tasklib.cli.report import CommandError, note

    try:
        from tasklib.server.serving import check, make_server
        from tasklib.server.settings import ServerSettings
    except ModuleNotFoundError as e:
        raise CommandError(f"{e.name} is not installed. The server needs: pip install 'tasklib-pg[server]'") from e
    settings = ServerSettings.from_env(modules=modules, **given)
    if asyncio.run(check(config, settings)):
        note(
            "--no-auth: every program on this machine has full access, until the first: tasklib token create", "yellow"
        )
    elif settings.no_auth:
        note("--no-auth has no effect: this database has, or had, API tokens, so every request needs one.", "yellow")
    made = make_server(config, settings)
    made.on_started = lambda url: note(f"Serving {url}. Ctrl-C stops it.")
    made.run()


def _configure_logging(log_format: LogFormat, *, quiet: bool) -> None:
    import logging
    import sys

    from tasklib.observe.task_logging import configure_task_logging

    is_for_people = log_format is not LogFormat.JSON and sys.stderr.isatty()
    as_json = None if is_for_people else log_format is not LogFormat.HUMAN
    configure_task_logging(as_json=as_json, level=logging.WARNING if quiet else logging.INFO)

"""The options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.option_groups import option_group

if TYPE_CHECKING:
    from tasklib.client.clients import Client
    from tasklib.config import Config

DEBUG = "tasklib.debug"
"""Where a command's context remembers --debug."""


class LogFormat(StrEnum):
    AUTO = "auto"
    HUMAN = "human"
    JSON = "json"


def _remember_debug(context: typer.Context, value: bool) -> bool:
    if value:
        context.meta[DEBUG] = True
    return value


DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="TASKLIB_DATABASE_URL",
        metavar="URL",
        help="The database: postgresql://user@host/db. Default: DATABASE_URL.",
    ),
]
DatabaseUrlFile = Annotated[
    Path | None,
    typer.Option(
        "--database-url-file",
        envvar="TASKLIB_DATABASE_URL_FILE",
        metavar="FILE",
        help="A file with the database's URL, such as a mounted secret, instead of --database-url.",
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        envvar="TASKLIB_SCHEMA",
        metavar="NAME",
        help="The schema of TaskLib's tables. Default: the search_path.",
    ),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug", envvar="TASKLIB_DEBUG", callback=_remember_debug, help="Show the whole traceback of an error."
    ),
]

JsonLines = Annotated[bool, typer.Option("--json", help="One JSON object per line, with all fields.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the task, or the end of it.", show_default=False)]
_IDS = typer.Argument(metavar="ID", show_default=False, help="The id of a task, or the end of it; repeatable.")
Ids = Annotated[list[str], _IDS]
AnyIds = Annotated[list[str] | None, _IDS]
Modules = Annotated[
    list[str],
    typer.Argument(
        metavar="MODULE[:OBJECT]",
        show_default=False,
        help="Where the tasks are: a module (app.tasks), a file (tasks.py), or one task or list of tasks in it "
        "(app.tasks:send_email).",
    ),
]
ModulesOfHost = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODULE[:OBJECT]...",
        show_default=False,
        help="Where the tasks are: a module (app.tasks), a file (tasks.py), or one task or list of tasks in it "
        "(app.tasks:send_email). In `manage.py tasklib worker` the default is the tasks.py of every app.",
    ),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", "-c", min=1, metavar="N", help="How many tasks run at the same time.")
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue", metavar="QUEUE", show_default=False, help="Serve only this queue; repeatable. Default: all."
    ),
]
Capabilities = Annotated[
    list[str] | None,
    typer.Option(
        "--capability",
        metavar="NAME",
        show_default=False,
        help="A capability of this worker, such as gpu, for tasks that require it; repeatable.",
    ),
]
PollInterval = Annotated[
    float | None,
    typer.Option(
        "--poll-interval", metavar="SECONDS", help="The longest interval at which an idle worker polls for tasks."
    ),
]
StartupTimeout = Annotated[
    float | None,
    typer.Option(
        "--startup-timeout", metavar="SECONDS", help="How long to wait for an unreachable database. Default: 60."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also show claims and attempts that start.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")]
LogFormats = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        help="auto: readable lines in a terminal, otherwise JSON lines. human: key=value lines without a terminal.",
    ),
]


def url_of(url: str | None, file: Path | None) -> str | None:
    """The database's URL, from the option or from a file."""
    if file is None:
        return url
    if url:
        raise typer.BadParameter(
            "the database's URL is given, by --database-url or TASKLIB_DATABASE_URL, and so is a file with it. "
            "Leave one of them out.",
            param_hint="--database-url-file",
        )
    from tasklib.addresses import url_in_file

    os.environ.pop("TASKLIB_DATABASE_URL_FILE", None)  # child processes get the URL itself
    return url_in_file(file)


def configured(database_url: str | None, schema: str | None) -> Config:
    """The configuration: options, then TASKLIB_... variables (or DATABASE_URL), then defaults.

    Inside of another program, such as manage.py, that program's configuration.
    """
    from tasklib.cli.host import host
    from tasklib.config import Config

    if (around := host()) is not None and not database_url:
        config = around.config()
        return config.with_changes(schema=schema) if schema else config
    return Config.from_env(database_url=database_url or None, schema=schema or None)


@dataclass(frozen=True, slots=True)
class ChosenDatabase:
    """The database and schema that a command's options name."""

    url: str | None
    schema: str | None

    def or_else(self, other: ChosenDatabase | None) -> ChosenDatabase:
        """The same, with the other's values for options that were not given."""
        return self if other is None else ChosenDatabase(self.url or other.url, self.schema or other.schema)

    def configured(self) -> Config:
        return configured(self.url, self.schema)

    def connected(self) -> Client:
        """A client, for `with database.connected() as client:`."""
        from tasklib.client.clients import Client  # imported late, so that `tasklib --help` stays quick

        return Client(self.configured())


def _chosen_database(database_url: DatabaseUrl = None, schema: Schema = None, debug: Debug = False) -> ChosenDatabase:
    return ChosenDatabase(database_url, schema)


with_database = option_group("database", _chosen_database, last=True)
"""Gives a command the options `--database-url`, `--schema` and `--debug`, and the parameter `database`."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Show an option that TaskLib refuses as an error in how the command was called."""
    from tasklib.errors import InvalidOption

    try:
        yield
    except InvalidOption as e:
        raise typer.BadParameter(str(e)) from e

"""`manage.py tasklib ...`: every command of `tasklib`, with the database and the tasks of this project."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tasklib.cli import report
from tasklib.cli.host import Host, run_in
from tasklib.django.settings import config
from tasklib.tasks import registry

DISCOVERY = "tasklib.django.discovery"


class Command(BaseCommand):
    """Hands its arguments on to the commands of `tasklib`."""

    help = "Run a command of TaskLib: worker, server, list, doctor and so on. `manage.py tasklib --help` lists them."
    requires_system_checks: list[str] = []

    def run_from_argv(self, argv: list[str]) -> None:
        """Leave everything to TaskLib but the two options that Django has read already."""
        read = CommandParser(add_help=False, allow_abbrev=False)
        read.add_argument("--settings")
        read.add_argument("--pythonpath")
        _, arguments = read.parse_known_args(argv[2:])
        _run(arguments, f"{os.path.basename(argv[0])} {argv[1]}")

    def add_arguments(self, parser: CommandParser) -> None:
        """For `call_command("tasklib", "worker", "--burst")`."""
        parser.add_argument("args", nargs=argparse.REMAINDER)

    def handle(self, *arguments: str, **_: Any) -> None:
        """Run the command, and return if it succeeds."""
        try:
            _run(arguments, "manage.py tasklib")
        except SystemExit as e:
            if e.code:
                raise CommandError(f"tasklib {' '.join(arguments)} ended with the exit code {e.code}.") from None


def _run(arguments: Sequence[str], name: str) -> None:
    # Typer would take it for --database-url.
    os.environ.pop("TASKLIB_DATABASE_URL", None)
    run_in(Host(name, config, (DISCOVERY,), _load), arguments)


def _load() -> None:
    importlib.import_module(DISCOVERY)
    if not registry.functions:
        raise report.CommandError(
            "no app in INSTALLED_APPS has tasks. Put functions with @task (from tasklib import task) into the "
            "tasks.py of an app, or name the module that has them: manage.py tasklib worker MODULE"
        )

"""Running the command line: in this process, or in a real one where signals and pipes matter."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import structlog
from typer.testing import CliRunner

from tasklib.cli.app import app
from tests.cli.processes import Command, Started


class Run(Protocol):
    def __call__(self, *args: str, **options: Any) -> Any: ...


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory of a user's project; what its modules do to this process is undone."""
    directory = tmp_path / "project"
    directory.mkdir()
    monkeypatch.chdir(directory)
    for name in list(os.environ):
        if name.startswith("TASKLIB_") and name != "TASKLIB_TEST_DATABASE_URL":
            monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules, environment = set(sys.modules), dict(os.environ)
    yield directory
    for name in set(sys.modules) - modules:
        if str(directory) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    os.environ.clear()
    os.environ.update(environment)
    structlog.reset_defaults()


@pytest.fixture
def url(project: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A migrated database, known to all commands of this process."""
    monkeypatch.setenv("TASKLIB_DATABASE_URL", database_url)
    return database_url


@pytest.fixture
def run(project: Path) -> Run:
    """`tasklib ...` in this process."""
    runner = CliRunner()

    def invoke(*args: str, **options: Any) -> Any:
        return runner.invoke(app, list(args), catch_exceptions=False, **options)

    return invoke


@pytest.fixture
def command(project: Path) -> Iterator[Command]:
    """`tasklib ...` in a process of its own, ended with the test."""
    processes: list[Started] = []

    def start(*args: str, **options: Any) -> Started:
        processes.append(Started(args, cwd=project, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.end()

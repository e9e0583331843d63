"""What all commands have in common."""

from __future__ import annotations

import pytest

from tasklib import __version__
from tests.cli.conftest import Run
from tests.cli.processes import Command

COMMANDS = (
    "worker",
    "dev",
    "migrate",
    "submit",
    "list",
    "show",
    "wait",
    "demo",
    "version",
    "cancel",
    "replay",
    "run-now",
    "edit",
    "failures",
    "pause",
    "resume",
    "pauses",
    "workers",
    "settings",
    "audit",
)
NOWHERE = "postgresql://app:hunter2@127.0.0.1:1/app"


def test_help_names_every_command(run: Run) -> None:
    for args in ((), ("--help",), ("-h",)):
        shown = run(*args)
        assert all(f"  {command} " in shown.output for command in COMMANDS)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in ("version", "demo")])
def test_each_command_takes_the_database_and_the_schema(run: Run, command: str) -> None:
    shown = run(command, "--help", env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    for text in ("--database-url", "TASKLIB_DATABASE_URL", "--schema", "TASKLIB_SCHEMA", "--debug"):
        assert text in shown.output


def test_version(run: Run) -> None:
    assert run("version").stdout == run("--version").stdout == f"tasklib {__version__}\n"


def test_errors_are_one_line_and_exit_with_1(run: Run) -> None:
    result = run("list")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == (
        "error: no database is configured. Set TASKLIB_DATABASE_URL=postgresql://user@host/db, "
        "or pass the URL (tasklib.init(url), --database-url).\n"
    )


def test_usage_errors_exit_with_2(run: Run) -> None:
    for args in (("lits",), ("list", "--stat", "x"), ("show",), ("list", "--limit", "0")):
        result = run(*args)
        assert result.exit_code == 2
        assert "Error: " in result.stderr


@pytest.mark.parametrize("args", [("list",), ("show", "0" * 32), ("migrate",), ("migrate", "--check"), ("submit", "x")])
def test_database_that_is_away_is_named_without_its_password(run: Run, args: tuple[str, ...]) -> None:
    result = run(*args, "--database-url", NOWHERE)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: can't connect to PostgreSQL at app@127.0.0.1:1/app: ")
    assert result.stderr.count("\n") == 1
    assert "hunter2" not in result.output


@pytest.mark.parametrize("debug", [("list", "--debug"), ("--debug", "list")])
def test_debug_shows_the_traceback(run: Run, debug: tuple[str, ...]) -> None:
    from tasklib.errors import DatabaseUnavailable

    with pytest.raises(DatabaseUnavailable):
        run(*debug, "--database-url", NOWHERE)


def test_debug_by_the_environment_shows_the_traceback_without_the_password(command: Command) -> None:
    process = command("list", TASKLIB_DEBUG="1", TASKLIB_DATABASE_URL=NOWHERE)
    assert process.exit_code() == 1
    assert "Traceback (most recent call last)" in process.said()
    assert "hunter2" not in process.said()


def test_url_that_postgresql_does_not_understand_is_refused_without_its_password(run: Run) -> None:
    for url in (
        "mysql://app:hunter2@db/app",
        "postgresql://app:hunter2@db:port/app",
        "host=db password=hunter2 nonsense",
    ):
        result = run("list", "--database-url", url)
        assert result.exit_code == 1
        assert result.stderr.startswith("error: database_url ")
        assert "hunter2" not in result.output


def test_passwords_are_left_out_of_any_error() -> None:
    from tasklib.cli.report import without_secrets

    assert without_secrets("at postgresql://u:p@ss:w@h/db and") == "at postgresql://u:***@h/db and"
    assert without_secrets("host=x password='a b' user=u") == "host=x password=*** user=u"
    assert without_secrets("postgresql://u@h:5432/db is well") == "postgresql://u@h:5432/db is well"


def test_environment_gives_database_and_schema(run: Run, empty_database_url: str) -> None:
    env = {"TASKLIB_DATABASE_URL": empty_database_url, "TASKLIB_SCHEMA": "jobs"}
    assert run("migrate", env=env).exit_code == 0
    assert run("list", env=env).exit_code == 0
    elsewhere = run("list", "--schema", "other", env=env)
    assert elsewhere.exit_code == 1
    assert 'relation "other.tasks" does not exist' in elsewhere.stderr
    assert "Run: tasklib migrate" in elsewhere.stderr

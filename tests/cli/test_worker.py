from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tasklib import Client
from tests.cli.conftest import Run
from tests.cli.processes import Command, Started

TASKS = """
import asyncio, pathlib
from tasklib import RetryPolicy, current_task, sync, task

@task
async def greet(name: str) -> str:
    return f"hello {name}"

@task
def shout(name: str) -> str:
    current_task().logger.info("shouting", loud=True)
    return name.upper()

@task(max_retries=0)
def fail() -> None:
    raise ValueError("no \\x1b[31m")

@task
def submit_another() -> str:
    return str(sync.submit_task(greet, name="from a task"))

@task(executor="process")
def compute(n: int) -> int:
    sync.submit_task(greet, name="from a child")
    return n * n

@task(max_retries=3)
async def hold() -> str:
    print("holding")
    while not pathlib.Path("let-go").exists():
        await asyncio.sleep(0.01)
    return "let go"

QUIET = [greet]
"""


@pytest.fixture(autouse=True)
def _tasks(project: Path) -> None:
    (project / "tasks.py").write_text(TASKS)


@pytest.fixture
def submit(url: str) -> Any:
    def submit(name: str, /, **kwargs: Any) -> Any:
        options = {"max_retries": 0, **kwargs.pop("options", {})}
        with Client(url) as client:
            return client.submit_task(name, kwargs=kwargs, registered_elsewhere=True, **options)

    return submit


def rows(db: psycopg.Connection) -> dict[str, tuple[str, int]]:
    return {name: (state, retries) for name, state, retries in db.execute("SELECT name, state, retry_count FROM tasks")}


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# ---- in this process: what it serves and says ----


def test_burst_runs_what_is_due_and_ends(run: Run, submit: Any, db: psycopg.Connection) -> None:
    submit("greet", name="you")
    submit("fail")
    result = run("worker", "tasks", "--burst")
    assert result.exit_code == 0
    assert rows(db) == {"greet": ("completed", 0), "fail": ("dead_letter", 0)}
    said = lines(result.stderr)
    assert said[0]["event"] == "worker started"
    assert {line["event"] for line in said} >= {"task completed", "task dead letter", "worker stopped"}


def test_object_serves_only_its_tasks(run: Run, submit: Any, db: psycopg.Connection) -> None:
    submit("greet", name="you")
    submit("shout", name="you")
    for target in ("tasks:QUIET", "tasks.py:greet"):
        assert run("worker", target, "--burst").exit_code == 0
        assert rows(db) == {"greet": ("completed", 0), "shout": ("pending", 0)}


def test_queues_and_capabilities(run: Run, submit: Any, db: psycopg.Connection) -> None:
    submit("greet", name="you", options={"queue": "mail"})
    submit("shout", name="you", options={"queue": "mail", "required_capabilities": ["gpu"]})
    run("worker", "tasks", "--burst", "--queue", "other", "--capability", "gpu")
    assert rows(db) == {"greet": ("pending", 0), "shout": ("pending", 0)}
    run("worker", "tasks", "--burst", "--queue", "other", "--queue", "mail")
    assert rows(db) == {"greet": ("completed", 0), "shout": ("pending", 0)}
    run("worker", "tasks", "--burst", "--queue", "mail", "--capability", "gpu")
    assert rows(db) == {"greet": ("completed", 0), "shout": ("completed", 0)}


def test_worker_without_tables_says_what_to_run_or_runs_it(run: Run, empty_database_url: str) -> None:
    url = ("--database-url", empty_database_url)
    result = run("worker", "tasks", "--burst", *url)
    assert result.exit_code == 1
    assert result.stderr == "error: TaskLib's tables are not in this database. Create them with: tasklib migrate\n"
    assert run("worker", "tasks", "--burst", "--migrate", *url).exit_code == 0


def test_module_that_fails_is_shown_with_its_traceback(run: Run, project: Path, url: str) -> None:
    (project / "broken.py").write_text("def f():\n    return 1 / 0\n\nf()\n")
    result = run("worker", "broken")
    assert result.exit_code == 1
    assert result.stderr.startswith(f'Traceback (most recent call last):\n  File "{project}/broken.py", line 4')
    assert result.stderr.endswith("\n\nerror: importing broken failed: ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ((), 2, "Missing argument"),
        (("taks",), 1, "error: no module named taks in "),
        (("json",), 1, "error: json has no tasks ("),
        (("tasks", "--concurrency", "0"), 2, "Invalid value for '--concurrency'"),
        (("tasks", "--poll-interval", "0"), 1, "error: poll_interval_seconds must be more than 0"),
        (("tasks", "--queue", ""), 1, "error: queues must be a list of names"),
        (("tasks", "--log-format", "xml"), 2, "'xml' is not one of 'auto', 'human', 'json'"),
    ],
)
def test_mistakes_are_explained(run: Run, url: str, args: tuple[str, ...], code: int, words: str) -> None:
    result = run("worker", *args)
    assert result.exit_code == code
    assert words in result.stderr


def test_database_may_come_from_the_module(run: Run, project: Path, database_url: str, db: psycopg.Connection) -> None:
    (project / "own.py").write_text(f"import tasklib\nfrom tasks import greet\ntasklib.init({database_url!r})\n")
    with Client(database_url) as client:
        client.submit_task("greet", name="you", registered_elsewhere=True)
    assert run("worker", "own", "--burst").exit_code == 0
    assert rows(db) == {"greet": ("completed", 0)}


def test_without_any_database_the_error_says_where_to_name_one(run: Run) -> None:
    result = run("worker", "tasks")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no database is configured. Set TASKLIB_DATABASE_URL=")


def test_key_value_lines_on_request(run: Run, submit: Any) -> None:
    submit("shout", name="you")
    result = run("worker", "tasks", "--burst", "--log-format", "human")
    assert 'event="worker started"' in result.stderr
    assert 'event="task completed"' in result.stderr
    assert "event=shouting" in result.stderr


def test_task_logger_speaks_json_like_the_worker(run: Run, submit: Any) -> None:
    task_id = submit("shout", name="you")
    said = lines(run("worker", "tasks", "--burst").stderr)
    [line] = [line for line in said if line["event"] == "shouting"]
    assert (line["task_id"], line["task"], line["attempt"], line["loud"]) == (str(task_id), "shout", 1, True)


def test_quiet_and_verbose(run: Run, submit: Any) -> None:
    submit("greet", name="you")
    submit("fail")
    assert [line["event"] for line in lines(run("worker", "tasks", "--burst", "-q").stderr)] == ["task dead letter"]
    submit("greet", name="you")
    assert "task started" in {line["event"] for line in lines(run("worker", "tasks", "--burst", "-v").stderr)}


# ---- in a process of its own ----


def test_tasks_and_their_child_processes_may_submit_others(command: Command, submit: Any, url: str) -> None:
    submit("submit_another")
    squared = submit("compute", n=12)
    process = command("worker", "tasks.py", "--burst", "--database-url", url)
    assert process.exit_code() == 0, process.said()
    with Client(url) as client:
        assert client.wait_for(squared, timeout=0) == 144
        greeted = {t.kwargs["name"] for t in client.list_tasks(name="greet")}
    assert greeted == {"from a task", "from a child"}


@pytest.fixture
def holding(command: Command, submit: Any, url: str) -> Started:
    """A worker that runs a task which ends when a file appears."""
    submit("hold")
    process = command("worker", "tasks", "-v", "--concurrency", "1", TASKLIB_DATABASE_URL=url)
    process.until("task started")
    return process


def test_first_signal_lets_the_running_task_finish(
    holding: Started, submit: Any, project: Path, db: psycopg.Connection
) -> None:
    holding.signal(signal.SIGTERM)
    holding.until("worker drains")
    submit("greet", name="too late")
    (project / "let-go").touch()
    assert holding.exit_code() == 0
    assert rows(db) == {"hold": ("completed", 0), "greet": ("pending", 0)}


def test_second_signal_gives_the_running_task_back_and_more_change_nothing(
    holding: Started, db: psycopg.Connection
) -> None:
    holding.signal(signal.SIGTERM)
    holding.until("worker drains")
    holding.signal(signal.SIGTERM)
    holding.signal(signal.SIGTERM)
    holding.until("task released", "worker stopped")
    holding.exit_code()
    assert rows(db) == {"hold": ("pending", 0)}
    assert "Traceback" not in holding.said()


def test_in_a_terminal_it_speaks_to_a_person_and_ctrl_c_works_twice(
    command: Command, submit: Any, url: str, db: psycopg.Connection
) -> None:
    process = command("worker", "tasks", terminal=True, TASKLIB_DATABASE_URL=url)
    process.until("6 task functions, all queues, 10 at a time")
    submit("greet", name="you")
    submit("fail")
    submit("hold")
    process.until("✓", "greet", "✗", "dead letter after 1 attempt", r"ValueError: no \x1b[31m")
    process.until("holding")
    process.press("\x03")
    process.until("stopping: 1 running task may finish, no new ones. Press Ctrl-C again to stop at once.")
    process.press("\x03")
    process.until("stopping at once: 1 running task released, to run again", "stopped")
    assert process.exit_code() == 0
    assert rows(db)["hold"] == ("pending", 0)


def test_worker_goes_on_when_its_lines_are_not_read(command: Command, submit: Any, url: str) -> None:
    process = command("worker", "tasks", TASKLIB_DATABASE_URL=url)
    process.until("worker started")
    process.stop_reading()
    with Client(url) as client:
        for name in ("heard", "unheard", "unheard again"):
            assert client.wait_for(submit("greet", name=name), timeout=120) == f"hello {name}"
    process.signal(signal.SIGTERM)
    assert process.exit_code() == 0


def test_submitting_a_name_no_live_worker_knows_is_warned_of(command: Command, url: str) -> None:
    worker = command("worker", "tasks", TASKLIB_DATABASE_URL=url)
    worker.until("worker started")
    submitted = command("submit", "gret", "name=a", TASKLIB_DATABASE_URL=url)
    submitted.until("no live worker knows 'gret'. Did you mean 'greet'?")
    assert submitted.exit_code() == 0, "the task is submitted all the same"

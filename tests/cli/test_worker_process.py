"""A worker as a process among others: closed standard streams, few descriptors, and as the first of a container."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tasklib import Client
from tests.cli.processes import PATIENCE, own_environment

TASKS = """
import os, subprocess, sys, time
from pathlib import Path
from tasklib import task

@task(executor="process")
def shout(text: str) -> str:
    print(text)
    return text.upper()

@task(executor="process")
def nap() -> None:
    time.sleep(0.05)

@task
def leave_an_orphan() -> int:
    # The shell ends at once; its sleep becomes the child of process 1, and ends a little later.
    shell = subprocess.run(["sh", "-c", "sleep 0.1 >/dev/null & echo $!; exit 7"], capture_output=True, text=True)
    assert shell.returncode == 7
    orphan = Path(f"/proc/{int(shell.stdout)}")
    deadline = time.monotonic() + 60
    while orphan.exists():
        assert time.monotonic() < deadline, orphan.joinpath("status").read_text()
        time.sleep(0.01)
    return os.getpid()
"""


@pytest.fixture(autouse=True)
def _tasks(project: Path) -> None:
    (project / "tasks.py").write_text(TASKS)


def submit(url: str, name: str, count: int = 1, /, **kwargs: Any) -> None:
    with Client(url) as client:
        for _ in range(count):
            client.submit_task(name, kwargs=kwargs, max_retries=0, registered_elsewhere=True)


def worker(
    url: str,
    *,
    shell: str = 'exec "$@"',
    before: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """`tasklib worker tasks --burst`, started by a shell that changes what it inherits."""
    command = [*before, sys.executable, "-m", "tasklib", "worker", "tasks", "--burst", *options]
    return subprocess.run(
        ["sh", "-c", shell, "sh", *command],
        env=own_environment({"TASKLIB_DATABASE_URL": url, **variables}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def states(db: psycopg.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT state, count(*) FROM tasks GROUP BY state").fetchall())


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_worker_and_its_children_run_with_closed_standard_streams(
    closed: str, url: str, db: psycopg.Connection
) -> None:
    submit(url, "shout", text="hello")
    ended = worker(url, shell=f'exec "$@" {closed}')
    assert (ended.returncode, states(db)) == (0, {"completed": 1}), ended.stderr


def test_character_that_stdout_lacks_doesnt_fail_a_task_in_a_child(url: str, db: psycopg.Connection) -> None:
    submit(url, "shout", text="€")
    ended = worker(url, PYTHONIOENCODING="ascii")
    assert states(db) == {"completed": 1}, ended.stderr
    assert "\\u20ac" in ended.stdout


def test_too_few_descriptors_for_all_children_cost_no_task(url: str, db: psycopg.Connection) -> None:
    submit(url, "nap", 60)
    ended = worker(url, shell='ulimit -n 64; exec "$@"', options=("--concurrency", "40"))
    assert states(db) == {"completed": 60}, ended.stderr


def can_be_process_1() -> str | None:
    """Why not, if it can't."""
    if shutil.which("unshare") is None:
        return "needs unshare (util-linux)"
    if os.geteuid() != 0:
        return "needs root, to make a PID namespace"
    tried = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, text=True)
    return None if tried.returncode == 0 else f"can't make a PID namespace: {tried.stderr.strip()}"


@pytest.mark.skipif(bool(can_be_process_1()), reason=str(can_be_process_1()))
def test_worker_that_is_process_1_reaps_orphans_and_leaves_exit_codes_to_those_who_wait_for_them(
    url: str, db: psycopg.Connection
) -> None:
    submit(url, "leave_an_orphan")
    submit(url, "shout", text="hello")
    ended = worker(url, before=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"))
    assert (ended.returncode, states(db)) == (0, {"completed": 2}), ended.stderr
    [(result,)] = db.execute("SELECT result FROM tasks WHERE name = 'leave_an_orphan'").fetchall()
    assert result["value"] != 1

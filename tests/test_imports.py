"""What is imported when: counted by name in a fresh interpreter, not by a clock."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import tasklib

FOR_SOME = ["alembic", "fastapi", "httpx", "jinja2", "matplotlib", "opentelemetry.sdk", "prometheus_client", "rich"]
FOR_SOME += ["sqlalchemy", "sqlmodel", "starlette", "structlog", "typer", "uvicorn"]
"""What only some programs need."""
FOR_THE_DATABASE = ["psycopg", "tasklib.client", "tasklib.db", "tasklib.worker", "tasklib.executors", "asyncio", "ssl"]
"""What a module that defines tasks doesn't need."""

DEFINES = """
import tasklib
from tasklib import Config, Reject, Retry, RetryPolicy, SubmitOptions, TaskId, current_task, task

@task(max_retries=5)
async def send_email(to: str) -> int: ...
"""
RUNS_A_CHILD = """
import socket
from tasklib.executors.child import Channels, ChildRunner
from tasklib.executors.child_protocol import Setup
from tasklib.executors.template import *

channels = Channels(*socket.socketpair(), socket.socketpair()[0])
ChildRunner(channels, Setup([], [], None, None, None, [], 10_000, 10_000, "send_email", "tasks"))
"""
RUNS_A_WORKER = """
from tasklib import Worker, task

@task
async def work() -> int:
    return 1

work.submit_sync()
Worker(burst=True).run_sync()
"""


def loaded(program: str, **environment: str) -> list[str]:
    """The modules that are there after the program has run."""
    program += "\nimport json, sys; print(json.dumps(list(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    found: list[str] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_importing_tasklib_and_defining_tasks_needs_no_driver_and_no_worker() -> None:
    modules = loaded(DEFINES)
    assert {*FOR_SOME, *FOR_THE_DATABASE} & set(modules) == set()
    assert len([name for name in modules if name.startswith("tasklib")]) < 32
    assert len(modules) < 260  # 470 once


def test_a_child_process_starts_without_a_driver() -> None:
    assert {*FOR_SOME, "psycopg", "tasklib.client", "tasklib.db", "tasklib.worker"} & set(loaded(RUNS_A_CHILD)) == set()


def test_submitting_and_running_tasks_needs_no_part_that_only_some_programs_need(database_url: str) -> None:
    modules = loaded(RUNS_A_WORKER, TASKLIB_DATABASE_URL=database_url)
    assert {*FOR_SOME, "tasklib.models", "tasklib.server"} & set(modules) == set()


def test_the_names_that_come_when_asked_for_are_shown() -> None:
    assert set(tasklib.__all__) <= set(dir(tasklib))


def test_every_public_name_is_importable_in_a_fresh_interpreter() -> None:
    loaded(
        f"from tasklib import {', '.join(tasklib.__all__)}\nfrom tasklib import *\nfrom tasklib.sync import get_task"
    )


def test_an_import_beside_the_other_distribution_of_that_name_says_so(tmp_path: Path) -> None:
    package = tmp_path / "tasklib"
    shutil.copytree(Path(tasklib.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "celery"))
    (package / "serializing.py").touch()
    for theirs in (None, "from .backends import TaskWarrior\n"):  # ours was installed last, then theirs
        if theirs:
            (package / "serializing.py").unlink()
            (package / "__init__.py").write_text(theirs)
        done = subprocess.run([sys.executable, "-c", "import tasklib"], cwd=tmp_path, capture_output=True, text=True)
        assert "a library for Taskwarrior, is installed over `tasklib-pg`" in done.stderr

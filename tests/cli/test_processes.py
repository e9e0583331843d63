"""`tasklib worker --processes N`: several workers under one supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tasklib import Client
from tasklib.cli.processes import Processes
from tests.cli.processes import Command
from tests.cli.test_worker_process import can_be_process_1, worker
from tests.eventually import eventually

TASKS = """
import os, time
from pathlib import Path
from tasklib import task

@task
def who() -> int:
    return os.getpid()

@task(max_retries=0)
def hold(directory: str) -> None:
    Path(directory, str(os.getpid())).touch()
    while not Path(directory, "go").exists():
        time.sleep(0.02)
"""


@pytest.fixture(autouse=True)
def _tasks(project: Path) -> None:
    (project / "tasks.py").write_text(TASKS)


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """Where each `hold` leaves its process id, and waits for a file `go`."""
    directory = tmp_path / "held"
    directory.mkdir()
    return directory


def submit(url: str, name: str, count: int = 1, **kwargs: Any) -> None:
    with Client(url) as client:
        client.submit_many(name, [kwargs] * count, registered_elsewhere=True)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def live_workers(db: psycopg.Connection) -> list[int]:
    return [row[0] for row in db.execute("SELECT pid FROM workers WHERE status = 'active' ORDER BY pid").fetchall()]


def test_one_signal_stops_all_workers_once_their_tasks_are_done(
    command: Command, url: str, db: psycopg.Connection, held: Path
) -> None:
    submit(url, "hold", 2, directory=str(held))
    started = command(
        "worker", "tasks", "--processes", "2", "--concurrency", "1", "--log-format", "json", TASKLIB_DATABASE_URL=url
    )
    eventually(lambda: len(list(held.iterdir())) >= 2)
    started.signal(signal.SIGTERM)
    (held / "go").touch()
    assert started.exit_code() == 0
    assert dict(db.execute("SELECT state, count(*) FROM tasks GROUP BY state").fetchall()) == {"completed": 2}
    ran = {int(path.name) for path in held.iterdir() if path.name.isdigit()}
    assert len(ran) == 2
    assert not any(map(alive, ran))


def test_a_second_signal_makes_all_workers_release_their_tasks(
    command: Command, url: str, db: psycopg.Connection, held: Path
) -> None:
    submit(url, "hold", 2, directory=str(held))
    started = command(
        "worker", "tasks", "--processes", "2", "--concurrency", "1", "--log-format", "json", TASKLIB_DATABASE_URL=url
    )
    eventually(lambda: len(list(held.iterdir())) >= 2)
    started.signal(signal.SIGTERM)
    eventually(lambda: not live_workers(db))
    started.signal(signal.SIGTERM)
    started.exit_code()
    assert not any(alive(int(path.name)) for path in held.iterdir())
    assert db.execute("SELECT count(*) FROM tasks WHERE state = 'completed'").fetchone() == (0,)


def test_workers_in_burst_mode_end_by_themselves(command: Command, url: str, db: psycopg.Connection) -> None:
    submit(url, "who", 6)
    started = command(
        "worker", "tasks", "--processes", "3", "--burst", "--log-format", "json", TASKLIB_DATABASE_URL=url
    )
    assert started.exit_code() == 0
    assert dict(db.execute("SELECT state, count(*) FROM tasks GROUP BY state").fetchall()) == {"completed": 6}


def test_a_worker_that_is_killed_is_started_anew(command: Command, url: str, db: psycopg.Connection) -> None:
    started = command("worker", "tasks", "--processes", "2", "--log-format", "json", TASKLIB_DATABASE_URL=url)
    eventually(lambda: len(live_workers(db)) == 2)
    first = live_workers(db)
    os.kill(first[0], signal.SIGKILL)
    started.until("ended with 137; it starts again in 0.5 s")
    eventually(lambda: len(set(live_workers(db)) - set(first)) == 1)
    started.signal(signal.SIGTERM)
    assert started.exit_code() == 0


def test_no_worker_outlives_a_supervisor_that_is_killed(command: Command, url: str, db: psycopg.Connection) -> None:
    started = command("worker", "tasks", "--processes", "2", "--log-format", "json", TASKLIB_DATABASE_URL=url)
    eventually(lambda: len(live_workers(db)) == 2)
    pids = live_workers(db)
    started.signal(signal.SIGKILL)
    eventually(lambda: not any(map(alive, pids)))
    assert live_workers(db) == []


def test_a_wrong_command_line_ends_the_supervisor_with_its_code(command: Command, url: str) -> None:
    started = command("worker", "no_such_module", "--processes", "2", TASKLIB_DATABASE_URL=url)
    assert started.exit_code() == 2
    assert "no_such_module" in started.said()


@pytest.mark.skipif(bool(can_be_process_1()), reason=str(can_be_process_1()))
def test_a_supervisor_can_be_process_1(url: str, db: psycopg.Connection) -> None:
    submit(url, "who", 4)
    ended = worker(
        url, before=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"), options=("--processes", "2")
    )
    assert ended.returncode == 0, ended.stderr
    assert dict(db.execute("SELECT state, count(*) FROM tasks GROUP BY state").fetchall()) == {"completed": 4}


# ---- without workers ----


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def test_pauses_grow_while_a_worker_keeps_crashing(capsys: Any, tmp_path: Path) -> None:
    count = tmp_path / "count"
    crash = f"from pathlib import Path; p = Path({str(count)!r}); n = len(p.read_text()) if p.exists() else 0; "
    crash += "p.write_text('x' * (n + 1)); raise SystemExit(0 if n == 3 else 7)"
    assert await Processes([python(crash)], os.environ, first_pause=0.001).run() == 0
    said = capsys.readouterr().err
    assert [f"in {pause} s" in said for pause in ("0.001", "0.002", "0.004")] == [True] * 3


async def test_a_worker_that_ran_for_long_is_started_anew_without_a_longer_pause(capsys: Any, tmp_path: Path) -> None:
    count = tmp_path / "count"
    crash = f"from pathlib import Path; p = Path({str(count)!r}); n = len(p.read_text()) if p.exists() else 0; "
    crash += "p.write_text('x' * (n + 1)); raise SystemExit(0 if n == 2 else 7)"
    minutes = iter(range(0, 10_000, 100))
    processes = Processes([python(crash)], os.environ, first_pause=0.001, clock=lambda: float(next(minutes)))
    assert await processes.run() == 0
    assert capsys.readouterr().err.count("in 0.001 s") == 2


async def test_the_exit_code_is_that_of_a_worker_that_could_not_start(capsys: Any) -> None:
    assert await Processes([python("raise SystemExit(0)"), python("raise SystemExit(2)")], os.environ).run() == 2


async def test_a_signal_leaves_the_exit_code_of_a_worker_that_has_just_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Popen.send_signal reaps such a child, and the one that waits for it is told 255."""

    def reaped(popen: Any) -> None:
        raise AssertionError("the signal asked for the exit code")

    monkeypatch.setattr(subprocess.Popen, "poll", reaped)
    waits = python("import time; time.sleep(600)")
    assert await Processes([waits, python("raise SystemExit(2)")], os.environ).run() == 2

"""`tasklib demo`, seen from outside: what a newcomer sees, what CI sees, and what is left behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tasklib.cli import demo
from tasklib.cli.demo_stage import Stage
from tasklib.cli.demo_tasks import SCHEMA, tick

pytestmark = pytest.mark.long

IN_ORDER = (
    "Workers, on any machine, take them from there and run them.",
    "== 1. Urgent tasks come first, delayed tasks when they are due ==",
    "INSERT INTO tasklib_demo.tasks",
    "They were sent in the order high, medium, low",
    "== 2. Failed tasks are retried; those that can't succeed become dead letters ==",
    "s: ConnectionError: the bank is closed",
    "400 customers exported",
    "read_invoice is a dead letter: ValueError: scan.pdf has no total",
    "== 3. A task that hangs or crashes doesn't affect the others ==",
    "died with signal SIGKILL",
    "The hanging child was killed: TaskTimeout: the attempt ran longer than its timeout of 2 s",
    "== 4. A worker dies, and no task is lost ==",
    "kill -9",
    "ada is dead; lease:",
    "ada's leases have run out: bob takes over her orders.",
    "8 orders, 8 parcels, none twice",
    "== 5. Throughput ==",
    "5,000 tasks submitted in",
    "== What happened ==",
    "5,018  submitted",
    "5,016  completed",
    "2  dead-lettered",
    "4  recovered",
    "0  lost",
    "none was lost, none done twice.",
    "docs/tutorial.md",
    "tasklib dev",
)


def test_without_a_terminal_it_tells_act_after_act_in_plain_lines() -> None:
    with started(stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        output = process.communicate()[0].decode()
    assert process.returncode == 0, output
    assert "\x1b" not in output
    at = 0
    for sentence in IN_ORDER:
        assert sentence in output[at:], f"{sentence!r} is missing or too early in:\n{output}"
        at = output.index(sentence, at)


def test_in_a_terminal_it_shows_a_table_and_ends_by_itself() -> None:
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with started(stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        output = read_all(master)
        assert process.wait() == 0, output
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l"), "the cursor is hidden at the end"
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
    for seen in ("what is happening", "ada is dead; lease:", "What happened", "0  lost", "docs/tutorial.md"):
        assert seen in text
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
def test_ctrl_c_leaves_nothing_behind(empty_database_url: str) -> None:
    with started("--database-url", empty_database_url, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if b"export_customers" in line and b"running" in line:
                process.send_signal(signal.SIGINT)
                break
        rest = process.communicate()[0].decode()
    assert process.returncode == 130
    assert "Stopped and cleaned up" in rest
    with psycopg.connect(empty_database_url) as db:
        assert schemas(db) == []
        assert db.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE application_name LIKE 'tasklib%' AND datname = current_database()"
        ).fetchone() == (0,)


def test_a_schema_that_is_already_there_is_not_touched(
    empty_database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {SCHEMA}")
        db.execute(f"CREATE TABLE {SCHEMA}.precious ()")
        assert demo.run_demo(empty_database_url) == 1
        assert f"already has a schema {SCHEMA}" in capsys.readouterr().out
        assert db.execute("SELECT to_regclass(%s)::text", [f"{SCHEMA}.precious"]).fetchone() == (f"{SCHEMA}.precious",)


def test_a_lost_task_or_a_double_result_is_said_and_ends_it_with_1(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sabotage(stage: Stage) -> None:
        stage.submit([tick.options(queue="nobody's").bind()])
        stage.db.execute(f"INSERT INTO {SCHEMA}.parcels VALUES (1, 'a bug')")

    monkeypatch.setattr(demo, "order_and_time", sabotage)
    for act in ("failures", "child_processes"):
        monkeypatch.setattr(demo, act, lambda stage: None)
    monkeypatch.setattr(demo, "burst", lambda stage: "")

    assert demo.run_demo(empty_database_url) == 1
    output = capsys.readouterr().out
    assert "expected that no task is lost, not 1" in output
    assert "expected that 8 orders make 8 parcels, not 9" in output
    assert "none twice" not in output
    with psycopg.connect(empty_database_url) as db:
        assert schemas(db) == []


@contextmanager
def started(*arguments: str, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The demo as a process of its own, which cleans up even if the test fails."""
    env = {k: v for k, v in os.environ.items() if k not in ("CI", "NO_COLOR") and not k.startswith("TASKLIB_")}
    env |= {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen([sys.executable, "-m", "tasklib", "demo", *arguments], env=env, **streams)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(120)


def read_all(terminal: int) -> str:
    """Everything that is written to a terminal until its last user has closed it."""
    output = b""
    with open(terminal, "rb", buffering=0) as stream:
        try:
            while chunk := stream.read(65536):
                output += chunk
        except OSError:  # how Linux reports that the other end is closed
            pass
    return output.decode()


def schemas(db: psycopg.Connection) -> list[tuple[str]]:
    return db.execute("SELECT nspname FROM pg_namespace WHERE nspname = %s", [SCHEMA]).fetchall()

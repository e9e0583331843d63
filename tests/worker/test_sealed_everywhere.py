"""Marked secrets, searched byte by byte in the server's data directory and in all that the programs print."""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import psycopg
import pytest

SECRET, CLEAR = "sealedmark0424242x", "clearmark0424242x"
PROGRAM = """
import sys, logging
logging.basicConfig(level=logging.DEBUG)
from tasklib import Sealed, Worker, current_task, init, task

@task(name="pay", sealed=True, max_retries=1)
def pay(iban: str, fail: bool = False) -> str:
    current_task().progress(iban)
    if fail:
        raise ValueError(f"no account {iban}")
    return iban

@task(name="fields", max_retries=0, executor="process")
def fields(order: str, iban: Sealed[str]) -> str:
    return iban

@task(name="plain")
def plain(iban: str) -> str:
    return iban

if __name__ == "__main__":
    init()
    pay.submit_sync(iban=sys.argv[1])
    pay.options(idempotency_key=sys.argv[1], unique=None).submit_sync(iban=sys.argv[1], fail=True)
    fields.submit_sync(order=sys.argv[2], iban=sys.argv[1])
    plain.submit_sync(iban=sys.argv[2])
    from tasklib.testing import drain_sync
    drain_sync(until_done=True)
"""


@pytest.mark.long
def test_nothing_clear_is_left_in_the_data_directory_or_in_any_output(
    tmp_path: Path, database_url: str, db: psycopg.Connection
) -> None:
    row = db.execute("SHOW data_directory").fetchone()
    directory = Path(row[0]) if row else Path()
    if not os.access(directory, os.R_OK):
        pytest.skip("the server's data directory is not on this machine")
    (tmp_path / "program.py").write_text(PROGRAM)
    keys = f"a:{b64encode(os.urandom(32)).decode()}"
    environment = {**os.environ, "TASKLIB_DATABASE_URL": database_url, "TASKLIB_KEYS": keys}
    # The secret is an argument of this one command; a task's is in no process title.
    ran = _run([sys.executable, "program.py", SECRET, CLEAR], tmp_path, environment)
    tasklib = [sys.executable, "-m", "tasklib"]
    outputs = [ran]
    for command in (
        ["list"],
        ["list", "--json"],
        ["dlq", "list"],
        ["check", "program.py"],
        ["keys", "status"],
    ):
        outputs.append(_run([*tasklib, *command], tmp_path, environment))
    ids = [str(r[0]) for r in db.execute("SELECT id FROM tasks ORDER BY id").fetchall()]
    outputs += [_run([*tasklib, "show", i, *more], tmp_path, environment) for i in ids for more in ([], ["--json"])]
    db.execute("CHECKPOINT")
    states = dict(db.execute("SELECT name, min(state) FROM tasks GROUP BY name").fetchall())
    assert states == {"pay": "completed", "fields": "completed", "plain": "completed"}
    assert [n for n, text in enumerate(outputs) if SECRET in text] == []
    assert CLEAR in "".join(outputs)  # so the search finds what is there
    found = {mark: _files_with(mark, directory) for mark in (SECRET, CLEAR)}
    assert found[SECRET] == []
    assert found[CLEAR] != []
    assert SECRET in _run([*tasklib, "show", ids[0], "--reveal"], tmp_path, environment)
    assert db.execute("SELECT action FROM audit WHERE action = 'task.reveal'").fetchall() == [("task.reveal",)]


def _run(command: list[str], directory: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout + done.stderr


def _files_with(mark: str, directory: Path) -> list[str]:
    return [str(path) for path in directory.rglob("*") if path.is_file() and mark.encode() in _content(path)]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # other tests drop tables of the same server
        return b""

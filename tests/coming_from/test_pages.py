"""The programs on the pages for users of other queues, before and after: both print the same."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Page

PEERS = {
    "celery": ["-m", "celery", "-A", "shop", "worker", "--pool", "solo"],
    "rq": ["-m", "rq.cli", "worker"],
    "dramatiq": ["-m", "dramatiq", "shop", "--processes", "1", "--threads", "1"],
    "huey": ["-m", "huey.bin.huey_consumer", "shop.huey"],
    "procrastinate": ["-m", "procrastinate", "--app", "shop.app", "worker", "--one-shot"],
}
REDIS_PORT = 6379
"""The programs name none, so it is the usual one."""


@contextmanager
def running(*command: str, cwd: Path, env: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def printed(cwd: Path, env: dict[str, str], *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("peer", PEERS)
def test_the_program_prints_the_same_before_and_after(peer: str, tmp_path: Path, database_url: str) -> None:
    if importlib.util.find_spec(peer) is None:
        pytest.skip(f"{peer} is not installed: pip install -e '.[peers]'")
    if peer != "procrastinate" and shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    programs = {b.file: b.code for b in Page(ROOT / f"docs/how-to/come-from-{peer}.md").blocks if b.file}
    before, after = tmp_path / "before", tmp_path / "after"
    for directory, name in ((before, "before/shop.py"), (after, "shop.py")):
        directory.mkdir()
        (directory / "shop.py").write_text(programs[name])
    env = {**os.environ, "DATABASE_URL": database_url, "TASKLIB_DATABASE_URL": database_url}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), "."])
    with running(sys.executable, "-m", "tasklib", "worker", "shop", cwd=after, env=env):
        now = printed(after, env, "shop.py")
    assert then(peer, before, env) == now


def then(peer: str, before: Path, env: dict[str, str]) -> str:
    """What the program of the other queue prints."""
    if peer == "procrastinate":
        printed(before, env, "-m", "procrastinate", "--app", "shop.app", "schema", "--apply")
        printed(before, env, "shop.py")
        return printed(before, env, *PEERS[peer])
    redis = ["redis-server", "--port", str(REDIS_PORT), "--save", "", "--bind", "127.0.0.1"]
    with running(*redis, cwd=before, env=env), running(sys.executable, *PEERS[peer], cwd=before, env=env):
        return printed(before, env, "shop.py")

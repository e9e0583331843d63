"""Task functions for child processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tasklib import limit, task


@task(name="child.add", executor="process")
def add(a: int, b: int) -> dict[str, int]:
    return {"sum": a + b, "pid": os.getpid()}


@task(name="child.sleep", executor="process")
def sleep() -> None:
    time.sleep(600)


@task(name="child.die", executor="process")
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@task(name="child.once", executor="process", at_most_once=True)
def once() -> None: ...


@task(name="child.note", executor="process")
def note(path: str, number: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{number}\n".encode())
    os.close(file)


@task(name="child.wait", executor="process")
def wait(go: str) -> None:
    """Write the process id beside the file that it then waits for."""
    Path(f"{go}.new").write_text(str(os.getpid()))
    Path(f"{go}.new").rename(f"{go}.pid")
    while not Path(go).exists():
        time.sleep(0.01)


@task(name="child.enter_a_limit", executor="process", max_retries=0)
def enter_a_limit() -> None:
    with limit("stripe"):
        raise AssertionError("entered")

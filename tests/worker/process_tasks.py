"""Task functions for child processes."""

from __future__ import annotations

import os
import signal
import time

from tasklib import task


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

"""Task functions for child processes."""

from __future__ import annotations

import os
import signal
import time

from tasklib import task


@task(executor="process")
def add(a: int, b: int) -> dict[str, int]:
    return {"sum": a + b, "pid": os.getpid()}


@task(executor="process")
def sleep() -> None:
    time.sleep(600)


@task(executor="process")
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

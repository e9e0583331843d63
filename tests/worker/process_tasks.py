"""Task functions for child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from tasklib import LimitNotFound, LimitTimeout, limit, task
from tasklib.errors import InvalidOption


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


@task(name="child.hold_a_place", executor="process", max_retries=0)
def hold_a_place(directory: str) -> list[str]:
    said = []
    with limit("stripe"):
        if not (left := Path(directory, "left")).exists():
            Path(directory, "entered").touch()
            while not left.exists():
                time.sleep(0.01)
        try:
            with limit("stripe", key="", timeout=0):
                said.append("twice")
        except (LimitTimeout, InvalidOption) as e:
            said.append(f"{type(e).__name__}: {e}")
    with limit("stripe", timeout=0):
        said.append("again")
    try:
        with limit("stirpe"):
            said.append("unknown")
    except LimitNotFound as e:
        said.append(f"{e.name}: {str(e)[:53]}")
    try:
        with limit("closed", key="eu", timeout=0.01):
            said.append("closed")
    except LimitTimeout as e:
        said.append(f"{e.name} {e.key}: {e}")
    return said


@task(name="child.give_up_a_place", executor="process", max_retries=0)
async def give_up_a_place() -> list[str]:
    said = []

    async def enter() -> None:
        async with limit("stripe"):
            said.append("entered beside another")

    async with limit("stripe"):
        waiting = asyncio.create_task(enter())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with limit("stripe"):
        said.append("free again")
    return said


@task(name="child.die_with_a_place", executor="process", max_retries=0)
def die_with_a_place(directory: str) -> str:
    with limit("stripe"):
        if not (died := Path(directory, "died")).exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return "entered after a crash"

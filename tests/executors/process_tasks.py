"""Task functions that the tests run in child processes."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import multiprocessing
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from tasklib import Reject, Retry, current_task, task

leftover: contextvars.ContextVar[str] = contextvars.ContextVar("leftover", default="none")


class Order(BaseModel):
    number: int
    tags: list[str]


class Fatal(Exception):
    pass


def until_killed() -> None:
    while True:
        signal.pause()


@task(executor="process")
def echo(when: datetime, key: UUID, order: Order) -> dict[str, Any]:
    types = [type(value).__name__ for value in (when, key, order)]
    return {"types": types, "when": when, "key": key, "order": order, "pid": os.getpid()}


@task(executor="process")
def pid() -> int:
    return os.getpid()


@task(executor="process")
async def pid_async() -> int:
    await asyncio.sleep(0)
    return os.getpid()


@task(executor="process")
def whoami() -> dict[str, Any]:
    me = current_task()
    shown = ("name", "attempt", "max_attempts", "token", "queue", "worker_id", "deadline", "trace_context")
    return {"id": me.id, "left": me.seconds_left} | {field: getattr(me, field) for field in shown}


@task(executor="process", non_retriable=(Fatal,))
def fail(how: str) -> None:
    match how:
        case "value":
            raise ValueError("no such thing: \x00")
        case "retry":
            raise Retry(in_=90)
        case "reject":
            raise Reject("stolen")
        case "fatal":
            raise Fatal("for good")
        case "exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "generator":
            raise GeneratorExit


@task(executor="process")
async def fail_async(how: str) -> None:
    await asyncio.sleep(0)
    if how == "exit":
        sys.exit(3)
    if how == "cancelled":
        raise asyncio.CancelledError
    raise ValueError("no such thing")


@task(executor="process")
def result(size: int, storable: bool = True) -> object:
    return "x" * size if storable else object()


@task(executor="process")
def die(how: str) -> None:
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), getattr(signal, how))
    until_killed()


@task(executor="process")
def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    current_task().progress(os.getpid())
    until_killed()


@task(executor="process")
def hold_the_interpreter() -> None:
    # PyDLL keeps the interpreter's lock: from the shell's first word on, no handler and no other thread runs here.
    script = f"echo $$ > {holding(os.getpid())}.new; mv {holding(os.getpid())}.new {holding(os.getpid())}; sleep 600"
    current_task().progress(os.getpid())
    ctypes.PyDLL(None).system(script.encode())


def holding(pid: int) -> Path:
    """Appears once the process holds its interpreter's lock, and has the process id of the shell that made it."""
    return Path(tempfile.gettempdir()) / f"tasklib-holding-{pid}"


@task(executor="process")
def clean_up(path: Path) -> None:
    try:
        current_task().progress(os.getpid())
        time.sleep(600)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)  # a second interruption must not break into this
        path.write_text(f"cancelled={current_task().cancelled}")


@task(executor="process")
async def clean_up_async(path: Path) -> None:
    try:
        current_task().progress(os.getpid())
        await asyncio.sleep(600)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        path.write_text(f"cancelled={current_task().cancelled}")  # noqa: ASYNC240 - it is alone on its loop


@task(executor="process")
def wait_for_file(path: Path) -> str:
    current_task().progress(os.getpid())
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return "seen"


@task(executor="process")
def begin(path: Path, how: str) -> str:
    path.write_text(str(os.getpid()))
    match how:
        case "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        case "goes on":
            until_killed()
    return how


@task(executor="process")
def linger(path: Path) -> None:
    try:
        current_task().progress(os.getpid())
        until_killed()
    finally:
        while not path.exists():
            time.sleep(0.01)


@task(executor="process")
def report(count: int) -> None:
    for i in range(count):
        current_task().progress({"step": i})


@task(executor="process")
def leave_a_thread(path: Path) -> None:
    """Return, and leave a thread behind that reports once the file is there."""
    context = current_task()

    def report_late() -> None:
        while not path.exists():
            time.sleep(0.01)
        context.progress("late")
        path.with_suffix(".told").touch()

    threading.Thread(target=report_late, daemon=True).start()


@task(executor="process")
def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stderr.write(text.upper())


@task(executor="process")
def with_subprocess(end: str) -> int:
    grandchild = subprocess.Popen(["sleep", "600"])
    current_task().progress([os.getpid(), grandchild.pid])
    if end == "return":
        return grandchild.pid
    if end == "crash":
        os._exit(9)
    until_killed()
    return 0


@task(executor="process")
def let_a_fork_return() -> str:
    if os.fork() == 0:
        return "from the copy"
    os.wait()
    return "from the child"


@task(executor="process")
def fork_that_holds_the_socket(until: Path) -> None:
    if os.fork() == 0:
        os.setsid()  # out of the group: it survives, with a copy of every descriptor
        while not until.exists():
            time.sleep(0.01)
        os._exit(0)
    os._exit(4)


@task(executor="process")
def babble(length: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and os.path.exists(f"/proc/self/fd/{name}"):
            mode = os.fstat(int(name)).st_mode
            if stat.S_ISSOCK(mode):
                os.write(int(name), length.to_bytes(4, "big") + b"nonsense")
    until_killed()


@task(executor="process")
def pool() -> list[int]:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        return list(processes.map(square, [1, 2, 3]))


@task(executor="process")
def terminate_forks(count: int) -> list[int | None]:
    def one() -> None:
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        process.start()
        process.terminate()
        process.join(120)
        codes.append(process.exitcode)

    codes: list[int | None] = []
    for _ in range(count):
        one()
    thread = threading.Thread(target=one)
    thread.start()
    thread.join()
    return codes


def square(number: int) -> int:
    return number * number


@task(executor="process")
def random_number() -> float:
    return random.random()


@task(executor="process")
def signals_are_usual() -> list[bool]:
    return [signal.getsignal(signal.SIGHUP) is signal.SIG_DFL, signal.getsignal(signal.SIGINT) is not signal.SIG_IGN]


@task(executor="process")
def set_variable(value: str) -> str:
    before = leftover.get()
    leftover.set(value)
    return before


@task(executor="process")
def surroundings() -> dict[str, Any]:
    return {
        "pythonpath": os.environ.get("PYTHONPATH"),
        "path": sys.path,
        "argv": sys.argv,
        "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
        "session": os.getsid(0) == os.getpid(),
        "stdin": os.readlink("/proc/self/fd/0"),
    }


def make_local() -> Any:
    @task(name="local", executor="process")
    def local() -> None: ...

    return local

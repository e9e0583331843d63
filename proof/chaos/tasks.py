"""The tasks of a chaos run. Each says that it runs, and returns the token it ran under."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from proof.history.actors import ActorLog
from tasklib import RetryPolicy, current_task, task

QUICK_RETRY = RetryPolicy(base_seconds=0.2, multiplier=2, max_seconds=2)
SLOTS = int(os.environ.get("CHAOS_SLOTS", "0"))
_running = 0
_lock = threading.Lock()


@cache
def log() -> ActorLog:
    # A child process logs under its own name: two writers of one file would need one lock.
    return ActorLog(Path(os.environ["CHAOS_LOGS"]), f"runs-{os.getpid()}")


class Running:
    """Notes that an attempt runs, and that no more run in this process than it has slots (I10)."""

    def __enter__(self) -> int:
        global _running
        context = current_task()
        log().write(op="run", task=str(context.id), token=context.token)
        with _lock:
            _running += 1
            if SLOTS and _running > SLOTS:
                log().write(op="violation", invariant="I10", detail=f"{_running} attempts in {SLOTS} slots")
        return context.token

    def __exit__(self, *_: object) -> None:
        global _running
        with _lock:
            _running -= 1


@task(name="chaos.short", retry_policy=QUICK_RETRY)
async def short(mark: str) -> dict[str, int]:
    with Running() as token:
        return {"token": token}


@task(name="chaos.tick", retry_policy=QUICK_RETRY)
async def tick() -> dict[str, int]:
    """The run of a slot."""
    with Running() as token:
        return {"token": token}


@task(name="chaos.unretried", max_retries=0)
async def unretried(mark: str) -> dict[str, int]:
    with Running() as token:
        return {"token": token}


@task(name="chaos.once", at_most_once=True)
async def once(mark: str, seconds: float) -> dict[str, int]:
    with Running() as token:
        await asyncio.sleep(seconds)
        return {"token": token}


@task(name="chaos.slow", retry_policy=QUICK_RETRY)
async def slow(mark: str, seconds: float) -> dict[str, int]:
    with Running() as token:
        await asyncio.sleep(seconds)
        return {"token": token}


@task(name="chaos.threaded", retry_policy=QUICK_RETRY)
def threaded(mark: str, seconds: float) -> dict[str, int]:
    with Running() as token:
        time.sleep(seconds)
        return {"token": token}


@task(name="chaos.process", retry_policy=QUICK_RETRY, executor="process")
def in_process(mark: str, seconds: float) -> dict[str, int]:
    context = current_task()
    log().write(op="run", task=str(context.id), token=context.token)
    time.sleep(seconds)
    return {"token": context.token}


@task(name="chaos.flaky", retry_policy=QUICK_RETRY, max_retries=3)
async def flaky(mark: str, failures: int) -> dict[str, int]:
    with Running() as token:
        if current_task().attempt <= failures:
            raise RuntimeError(f"attempt {current_task().attempt} of {failures} that fail")
        return {"token": token}


@task(name="chaos.hung", retry_policy=QUICK_RETRY, timeout_seconds=1, max_retries=1)
async def hung(mark: str) -> dict[str, int]:
    with Running() as token:
        await asyncio.sleep(3600)
        return {"token": token}


@task(name="chaos.deadly", retry_policy=QUICK_RETRY, executor="process")
def deadly(mark: str, times: int) -> dict[str, int]:
    """Takes its child process down, under its first so many tokens."""
    context = current_task()
    log().write(op="run", task=str(context.id), token=context.token)
    if context.token <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"token": context.token}


# With a timeout: on a link that has fallen silent nothing else ends the task's own statements.
@task(name="chaos.transactional", retry_policy=QUICK_RETRY, transactional=True, timeout_seconds=10)
async def transactional(mark: str, connection: psycopg.AsyncConnection[Any]) -> dict[str, int]:
    with Running() as token:
        await connection.execute("INSERT INTO ledger VALUES (%s, %s)", (current_task().id, token))
        return {"token": token}

"""The task functions of `tasklib demo`: the background work of a small web shop, and an example to copy from.

    tasklib worker tasklib.cli.demo_tasks

A task function is an ordinary function with `@task` above it. Its arguments are checked against the type hints when a
task is submitted; what it returns is stored as the task's result, what it raises as the task's error.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time

from psycopg import AsyncConnection

from tasklib import RetryPolicy, current_task, task

SCHEMA = "tasklib_demo"
CREATE_PARCELS = f"CREATE TABLE {SCHEMA}.parcels (order_number integer NOT NULL, worker text NOT NULL)"
"""Without a unique constraint: if an order were shipped twice, the demo would see two parcels."""

quick_retries = RetryPolicy(base_seconds=1, multiplier=2, jitter=0)
"""1, 2, 4 seconds; the default is 5, 10, 20."""


@task
async def send_email(subject: str) -> str:
    """The simplest kind. Async functions share the worker's event loop."""
    await asyncio.sleep(0.5)
    return f"{subject} is sent"


@task(max_retries=3, retry_policy=quick_retries)
async def charge_card(order: int) -> str:
    """Whatever a task raises, it is tried again later. Here the third attempt succeeds."""
    await asyncio.sleep(0.3)
    if current_task().attempt < 3:
        raise ConnectionError("the bank is closed")
    return f"order {order} is paid"


@task(max_retries=1, retry_policy=quick_retries)
async def read_invoice(path: str) -> float:
    """Never works. After its last retry the task is a dead letter: kept with its error, for a person to look at."""
    await asyncio.sleep(0.3)
    raise ValueError(f"{path} has no total")


@task
def export_customers(count: int) -> str:
    """A synchronous function runs in a thread. It may say how far it is."""
    for done in range(count + 1):
        current_task().progress({"done": done, "of": count})
        time.sleep(4 / count)
    return f"{count} customers exported"


@task(executor="process", timeout_seconds=2, max_retries=0)
def match_pattern(text: str) -> bool:
    """An innocent regular expression that takes years on "aaa...b", in C code that can't be interrupted.

    In a thread it would hold up the whole worker for ever. In a child process it is killed when its time is up.
    """
    return re.fullmatch(r"(a+)+", text) is not None


@task(executor="process", retry_policy=quick_retries)
def encode_video(title: str) -> str:
    """Its process dies in mid-run, as when the kernel runs out of memory. The worker lives on and tries again."""
    if current_task().attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{title} is encoded"


@task(transactional=True)
async def ship_order(connection: AsyncConnection, order: int) -> str:
    """Its INSERT and its completion are one transaction: both happen, or neither, and never twice."""
    await connection.execute(
        f"INSERT INTO {SCHEMA}.parcels (order_number, worker) VALUES (%s, %s)",
        (order, current_task().worker_id),
    )
    await asyncio.sleep(2.5)  # it is in here that a worker is killed
    return f"order {order} is shipped"


@task(queue="ticks")
async def tick() -> None:
    """Nothing at all, to see how fast nothing gets done."""

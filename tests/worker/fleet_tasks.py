"""Task functions for workers in processes of their own. Each writes to a side table what it did."""

from __future__ import annotations

import asyncio
import ctypes
import os

import psycopg

from tasklib import current_task, task

URL = os.environ.get("FLEET_URL", "")


def _note(what: str) -> None:
    with psycopg.connect(URL, autocommit=True) as connection:
        me = current_task()
        connection.execute(
            "INSERT INTO notes (task, token, pid, what) VALUES (%s, %s, %s, %s)", (me.id, me.token, os.getpid(), what)
        )


@task
def note(number: int) -> int:
    _note("done")
    return number


@task
async def nothing(number: int) -> int:
    return number


@task
async def hold(until: str) -> str:
    """Runs until somebody inserts the note it waits for."""
    _note("started")
    async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as connection:
        while True:
            cursor = await connection.execute("SELECT 1 FROM notes WHERE what = %s", (until,))
            if await cursor.fetchone():
                break
            await asyncio.sleep(0.02)
    _note("finished")
    return f"by {os.getpid()}"


@task(max_retries=50)
async def collapse() -> None:
    """Takes its whole worker down."""
    _note("started")
    os._exit(7)


@task
async def hold_the_gil(seconds: int) -> str:
    """What a badly written extension does: no other thread of this process runs meanwhile."""
    _note("started")
    ctypes.PyDLL(None).sleep(seconds)
    return "held"


def _log_beginning() -> None:
    """One line in a file, which survives whatever becomes of this process."""
    file = os.open(os.environ["FLEET_BEGINNINGS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{current_task().id}\n".encode())
    os.close(file)


@task(max_retries=0)
async def never_retried() -> None:
    _log_beginning()


@task(at_most_once=True)
async def at_most_once() -> None:
    _log_beginning()

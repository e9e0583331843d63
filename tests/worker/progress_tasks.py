"""Task functions that report and end at once, in each of the ways there are."""

from __future__ import annotations

import asyncio
from typing import Any

from tasklib import Reject, Retry, current_task, task


def report_and_end(how: str) -> str:
    for done in range(1, 41):
        current_task().progress({"done": done, "of": 40})
    match how:
        case "dead_letter":
            raise Reject("no")
        case "failed":
            raise Retry(in_=1000)
        case "cancelled":
            raise asyncio.CancelledError
    return how


@task(name="progress.loop")
async def on_the_loop(how: str) -> str:
    return report_and_end(how)


@task(name="progress.thread")
def in_a_thread(how: str) -> str:
    return report_and_end(how)


@task(name="progress.process", executor="process")
def in_a_process(how: str) -> str:
    return report_and_end(how)


@task(name="progress.transaction", transactional=True)
async def in_a_transaction(how: str, connection: Any) -> str:
    return report_and_end(how)


@task(name="progress.thread_transaction", transactional=True)
def in_a_transaction_in_a_thread(how: str, connection: Any) -> str:
    return report_and_end(how)


EVERYWHERE = (on_the_loop, in_a_thread, in_a_process, in_a_transaction, in_a_transaction_in_a_thread)


@task(name="progress.cancelled")
async def until_cancelled() -> None:
    current_task().progress("so far")
    await asyncio.Event().wait()


@task(name="progress.each")
async def each(value: Any) -> None:
    current_task().progress(value)


@task(name="progress.silent")
async def silent() -> None: ...

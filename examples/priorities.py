"""Urgent tasks come first, whatever was submitted first; delayed tasks come when they are due.

    python examples/priorities.py

It prints:

    a login code
    an invoice
    a newsletter
    a reminder
"""

from __future__ import annotations

import asyncio

from tasklib import Worker, submit_many, task


@task
async def send(letter: str) -> None:
    print(letter)


async def main() -> None:
    reminder, *_ = await submit_many(
        [
            send.options(priority="low", delay_seconds=0.5).bind(letter="a reminder"),
            send.options(priority="low").bind(letter="a newsletter"),
            send.bind(letter="an invoice"),
            send.options(priority="high").bind(letter="a login code"),
        ]
    )
    async with Worker(concurrency=1):  # one task at a time, so that the order shows
        await reminder.wait(timeout=10)


if __name__ == "__main__":
    asyncio.run(main())

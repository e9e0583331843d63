"""SAQ on PostgreSQL. It has no call for many, so many are submitted concurrently.

Options: `concurrency`, `pool` of the worker, `submit_pool` of the producer, `batch` of concurrent submissions.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from adapter import DATABASE_URL, OPTIONS, AsyncAdapter, chunks, hit, main, nap_async, run, started
from psycopg_pool import AsyncConnectionPool
from saq import Worker
from saq.queue.postgres import PostgresQueue

logging.disable(logging.INFO)  # a line for each task otherwise


async def noop(context: Any) -> None:
    hit()


def sync_noop(context: Any) -> None:
    hit()


async def ping(context: Any, *, number: int) -> None:
    started(number)


async def nap(context: Any) -> None:
    await nap_async()


def queue_with(connections: int) -> PostgresQueue:
    pool = AsyncConnectionPool(
        DATABASE_URL, min_size=connections, max_size=connections, open=False, kwargs={"autocommit": True}
    )
    return PostgresQueue(pool=pool, manage_pool_lifecycle=True)


class Saq(AsyncAdapter):
    async def setup(self) -> None:
        queue = queue_with(2)
        await queue.connect()
        await queue.disconnect()

    async def open(self) -> None:
        self.queue = queue_with(OPTIONS["submit_pool"])
        await self.queue.connect()

    async def close(self) -> None:
        await self.queue.disconnect()

    async def submit(self, kind: str, number: int) -> None:
        await self.queue.enqueue(kind, **({"number": number} if kind == "ping" else {}))

    async def submit_many(self, kind: str, count: int) -> None:
        for size in chunks(count, OPTIONS["batch"]):
            await asyncio.gather(*[self.queue.enqueue(kind) for _ in range(size)])

    def work(self) -> None:
        run(self._work())

    async def _work(self) -> None:
        queue = queue_with(OPTIONS["pool"])
        functions = [noop, ("sync_noop", sync_noop), ping, nap]
        worker = Worker(queue, functions=functions, concurrency=OPTIONS["concurrency"])
        await queue.connect()
        await worker.start()


if __name__ == "__main__":
    main(Saq())

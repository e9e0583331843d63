"""Taskiq on a Redis list. It has no call for many, so many are submitted concurrently.

Options: `concurrency`, `prefetch`, `pool` (the most connections), `batch` of concurrent submissions.
"""

from __future__ import annotations

import asyncio

from adapter import OPTIONS, REDIS_URL, AsyncAdapter, become, chunks, hit, main, nap_async, started
from taskiq_redis import ListQueueBroker

broker = ListQueueBroker(REDIS_URL, max_connection_pool_size=OPTIONS.get("pool", 50))


@broker.task(task_name="noop")
async def noop() -> None:
    hit()


@broker.task(task_name="sync_noop")
def sync_noop() -> None:
    hit()


@broker.task(task_name="ping")
async def ping(number: int) -> None:
    started(number)


@broker.task(task_name="nap")
async def nap() -> None:
    await nap_async()


TASKS = {"noop": noop, "sync_noop": sync_noop, "ping": ping, "nap": nap}


class Taskiq(AsyncAdapter):
    async def open(self) -> None:
        await broker.startup()

    async def close(self) -> None:
        await broker.shutdown()

    async def submit(self, kind: str, number: int) -> None:
        await TASKS[kind].kiq(*([number] if kind == "ping" else []))

    async def submit_many(self, kind: str, count: int) -> None:
        for size in chunks(count, OPTIONS["batch"]):
            await asyncio.gather(*[TASKS[kind].kiq() for _ in range(size)])

    def work(self) -> None:
        limits = ["--max-async-tasks", str(OPTIONS["concurrency"]), "--max-prefetch", str(OPTIONS["prefetch"])]
        become("taskiq", "worker", "--workers", "1", *limits, "--log-level", "ERROR", "taskiq_adapter:broker")


if __name__ == "__main__":
    main(Taskiq())

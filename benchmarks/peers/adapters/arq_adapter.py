"""arq on Redis. It has no call for many, so many are submitted concurrently; results are not kept.

Options: `concurrency`, `poll_seconds`, `read_limit` of a poll, `batch` of concurrent submissions.
"""

from __future__ import annotations

import asyncio
from typing import Any

from adapter import OPTIONS, REDIS_URL, AsyncAdapter, chunks, hit, main, nap_async, run, started
from arq import Worker, create_pool
from arq.connections import RedisSettings
from arq.worker import func

SETTINGS = RedisSettings.from_dsn(REDIS_URL)


async def noop(context: Any) -> None:
    hit()


async def ping(context: Any, number: int) -> None:
    started(number)


async def nap(context: Any) -> None:
    await nap_async()


class Arq(AsyncAdapter):
    async def open(self) -> None:
        self.pool = await create_pool(SETTINGS)

    async def close(self) -> None:
        await self.pool.aclose()

    async def submit(self, kind: str, number: int) -> None:
        await self.pool.enqueue_job(kind, *([number] if kind == "ping" else []))

    async def submit_many(self, kind: str, count: int) -> None:
        for size in chunks(count, OPTIONS["batch"]):
            await asyncio.gather(*[self.pool.enqueue_job(kind) for _ in range(size)])

    def work(self) -> None:
        run(self._work())

    async def _work(self) -> None:
        worker = Worker(
            [func(function, keep_result=0) for function in (noop, ping, nap)],
            redis_settings=SETTINGS,
            max_jobs=OPTIONS["concurrency"],
            poll_delay=OPTIONS["poll_seconds"],
            queue_read_limit=OPTIONS["read_limit"],
            handle_signals=False,
        )
        await worker.async_run()


if __name__ == "__main__":
    main(Arq())

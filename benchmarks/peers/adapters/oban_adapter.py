"""Oban for Python. Options: `concurrency`, `pool` (the most connections), `batch` of enqueue_many."""

from __future__ import annotations

import asyncio

from adapter import DATABASE_URL, OPTIONS, AsyncAdapter, chunks, hit, main, nap_async, run, started
from oban import Oban, job
from oban.schema import install


@job(queue="default")
async def noop() -> None:
    hit()


@job(queue="default")
def sync_noop() -> None:
    hit()


@job(queue="default")
async def ping(number: int) -> None:
    started(number)


@job(queue="default")
async def nap() -> None:
    await nap_async()


JOBS = {"noop": noop, "sync_noop": sync_noop, "ping": ping, "nap": nap}


class ObanAdapter(AsyncAdapter):
    async def setup(self) -> None:
        pool = await Oban.create_pool(DATABASE_URL)
        await install(pool)
        await pool.close()

    async def open(self) -> None:
        self.pool = await Oban.create_pool(DATABASE_URL)
        self.oban = Oban(pool=self.pool)
        await self.oban.start()

    async def close(self) -> None:
        await self.oban.stop()
        await self.pool.close()

    async def submit(self, kind: str, number: int) -> None:
        await self.oban.enqueue(JOBS[kind].new(number) if kind == "ping" else JOBS[kind].new())

    async def submit_many(self, kind: str, count: int) -> None:
        for size in chunks(count, OPTIONS["batch"]):
            await self.oban.enqueue_many([JOBS[kind].new() for _ in range(size)])

    def work(self) -> None:
        run(self._work())

    async def _work(self) -> None:
        pool = await Oban.create_pool(DATABASE_URL, min_size=2, max_size=OPTIONS["pool"])
        async with Oban(pool=pool, queues={"default": {"limit": OPTIONS["concurrency"]}}):
            await asyncio.Event().wait()


if __name__ == "__main__":
    main(ObanAdapter())

"""Chancy. Options: `concurrency`, `threads` for synchronous jobs, `flush_seconds` between its batches of updates."""

from __future__ import annotations

import logging

from adapter import DATABASE_URL, OPTIONS, AsyncAdapter, hit, main, nap_async, run, started
from chancy import Chancy, Queue, Worker, job


@job(queue="default")
async def noop() -> None:
    hit()


@job(queue="threads")
def sync_noop() -> None:
    hit()


@job(queue="default")
async def ping(*, number: int) -> None:
    started(number)


@job(queue="default")
async def nap() -> None:
    await nap_async()


JOBS = {"noop": noop, "sync_noop": sync_noop, "ping": ping, "nap": nap}


def app() -> Chancy:
    quiet = logging.getLogger("quiet")
    return Chancy(DATABASE_URL, min_connection_pool_size=2, max_connection_pool_size=10, log=quiet)


def queue(name: str, concurrency: int, executor: str) -> Queue:
    return Queue(name, concurrency=concurrency, executor=executor, polling_interval=1, eager_polling=True)


class ChancyAdapter(AsyncAdapter):
    async def setup(self) -> None:
        async with app() as chancy:
            await chancy.migrate()
            await chancy.declare(queue("default", OPTIONS["concurrency"], Chancy.Executor.Async))
            await chancy.declare(queue("threads", OPTIONS["threads"], Chancy.Executor.Threaded))

    async def open(self) -> None:
        self.chancy = app()
        await self.chancy.__aenter__()

    async def close(self) -> None:
        await self.chancy.__aexit__(None, None, None)

    async def submit(self, kind: str, number: int) -> None:
        await self.chancy.push(ping.job.with_kwargs(number=number) if kind == "ping" else JOBS[kind])

    async def submit_many(self, kind: str, count: int) -> None:
        async for _ in self.chancy.push_many([JOBS[kind].job] * count, batch_size=OPTIONS["batch"]):
            pass

    def work(self) -> None:
        run(self._work())

    async def _work(self) -> None:
        async with app() as chancy, Worker(chancy) as worker:
            worker.send_outgoing_interval = OPTIONS["flush_seconds"]
            await worker.wait_for_shutdown()


if __name__ == "__main__":
    # Jobs are stored by the path of their function, and the worker imports it; as __main__ there would be two of each.
    import chancy_adapter

    main(chancy_adapter.ChancyAdapter())

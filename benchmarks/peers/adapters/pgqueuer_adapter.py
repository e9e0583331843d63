"""PgQueuer. Options: `batch` of a dequeue, `pool` (the most connections), `enqueue_batch`."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
from adapter import DATABASE_URL, OPTIONS, AsyncAdapter, chunks, hit, main, nap_async, run, started
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, PgQueuer, Queries
from pgqueuer.models import Job

LONG = timedelta(seconds=30)
"""How long an idle worker waits for a notification before it polls; its documented default."""


class PgQueuerAdapter(AsyncAdapter):
    async def setup(self) -> None:
        connection = await asyncpg.connect(DATABASE_URL)
        queries = Queries(AsyncpgDriver(connection))
        await queries.install()
        if hasattr(queries, "optimize_autovacuum"):
            await queries.optimize_autovacuum()
        await connection.close()

    async def open(self) -> None:
        self.connection = await asyncpg.connect(DATABASE_URL)
        self.queries = Queries(AsyncpgDriver(self.connection))

    async def close(self) -> None:
        await self.connection.close()

    async def submit(self, kind: str, number: int) -> None:
        await self.queries.enqueue(kind, str(number).encode())

    async def submit_many(self, kind: str, count: int) -> None:
        for size in chunks(count, OPTIONS["enqueue_batch"]):
            await self.queries.enqueue([kind] * size, [None] * size, [0] * size)

    def work(self) -> None:
        run(self._work())

    async def _work(self) -> None:
        pool = await asyncpg.create_pool(DATABASE_URL, min_size=2, max_size=OPTIONS["pool"])
        worker = PgQueuer(AsyncpgPoolDriver(pool))
        register_tasks(worker)
        await worker.run(batch_size=OPTIONS["batch"], dequeue_timeout=LONG)


def register_tasks(worker: PgQueuer) -> None:
    """Entrypoints are coroutines only; a thread for a synchronous one is the documented way."""

    @worker.entrypoint("noop")
    async def noop(job: Job) -> None:
        hit()

    @worker.entrypoint("sync_noop")
    async def sync_noop(job: Job) -> None:
        await asyncio.to_thread(hit)

    @worker.entrypoint("ping")
    async def ping(job: Job) -> None:
        started(int(job.payload or b"0"))

    @worker.entrypoint("nap")
    async def nap(job: Job) -> None:
        await nap_async()


if __name__ == "__main__":
    main(PgQueuerAdapter())

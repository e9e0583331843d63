"""awa, a Rust core with Python bindings. Options: `concurrency`, `pool` (the most connections), `batch` of COPY."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import awa
from adapter import DATABASE_URL, OPTIONS, AsyncAdapter, chunks, hit, main, nap_async, run, started


@dataclass
class Noop:
    number: int = 0


@dataclass
class SyncNoop:
    number: int = 0


@dataclass
class Ping:
    number: int = 0


@dataclass
class Nap:
    number: int = 0


KINDS = {"noop": Noop, "sync_noop": SyncNoop, "ping": Ping, "nap": Nap}


def client() -> awa.AsyncClient:
    return awa.AsyncClient(DATABASE_URL, max_connections=OPTIONS["pool"])


class Awa(AsyncAdapter):
    async def setup(self) -> None:
        awa_client = client()
        await awa_client.migrate()
        await awa_client.install_queue_storage()
        await awa_client.close()

    async def open(self) -> None:
        self.client = client()

    async def close(self) -> None:
        await self.client.close()

    async def submit(self, kind: str, number: int) -> None:
        await self.client.insert(KINDS[kind](number), queue="default")

    async def submit_many(self, kind: str, count: int) -> None:
        for size in chunks(count, OPTIONS["batch"]):
            await self.client.enqueue_many_copy([KINDS[kind](number) for number in range(size)], queue="default")

    def work(self) -> None:
        run(self._work())

    async def _work(self) -> None:
        worker = client()
        register_tasks(worker)
        await worker.start([("default", OPTIONS["concurrency"])])
        await asyncio.Event().wait()


def register_tasks(worker: awa.AsyncClient) -> None:
    @worker.task(Noop, queue="default")
    async def noop(job: Any) -> None:
        hit()

    @worker.task(SyncNoop, queue="default")
    async def sync_noop(job: Any) -> None:
        await asyncio.to_thread(hit)

    @worker.task(Ping, queue="default")
    async def ping(job: Any) -> None:
        started(job.args.number)

    @worker.task(Nap, queue="default")
    async def nap(job: Any) -> None:
        await nap_async()


if __name__ == "__main__":
    main(Awa())

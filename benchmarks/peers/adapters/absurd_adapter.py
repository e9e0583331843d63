"""Absurd. It has no call for many, so several clients submit concurrently.

Options: `concurrency`, `batch` of a claim, `poll_seconds`, `clients` that submit.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL
from adapter import DATABASE_URL, OPTIONS, AsyncAdapter, hit, main, nap_async, run, started


def client() -> AsyncAbsurd:
    """A client that knows the tasks: it refuses to submit others."""
    absurd = AsyncAbsurd(DATABASE_URL)

    @absurd.register_task(name="noop")
    async def noop(parameters: Any, context: Any) -> None:
        hit()

    @absurd.register_task(name="ping")
    async def ping(parameters: Any, context: Any) -> None:
        started(parameters["number"])

    @absurd.register_task(name="nap")
    async def nap(parameters: Any, context: Any) -> None:
        await nap_async()

    return absurd


class Absurd(AsyncAdapter):
    async def setup(self) -> None:
        with psycopg.connect(DATABASE_URL, autocommit=True) as connection:
            connection.execute(BUNDLED_SCHEMA_SQL)
        absurd = client()
        await absurd.create_queue("default")
        await absurd.close()

    async def open(self) -> None:
        self.absurd = client()

    async def close(self) -> None:
        await self.absurd.close()

    async def submit(self, kind: str, number: int) -> None:
        await self.absurd.spawn(kind, {"number": number})

    async def submit_many(self, kind: str, count: int) -> None:
        producers = OPTIONS["clients"]
        shares = [count // producers + (number < count % producers) for number in range(producers)]
        await asyncio.gather(*[_submit_share(kind, share) for share in shares])

    def work(self) -> None:
        run(
            client().start_worker(
                concurrency=OPTIONS["concurrency"],
                batch_size=OPTIONS["batch"],
                poll_interval=OPTIONS["poll_seconds"],
            )
        )


async def _submit_share(kind: str, count: int) -> None:
    absurd = client()
    for number in range(count):
        await absurd.spawn(kind, {"number": number})
    await absurd.close()


if __name__ == "__main__":
    main(Absurd())

"""Procrastinate. Options: `concurrency`, `pool` (the most connections), `batch` of batch_defer."""

from __future__ import annotations

import procrastinate
from adapter import DATABASE_URL, OPTIONS, AsyncAdapter, chunks, hit, main, nap_async, run, started

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=DATABASE_URL, min_size=1, max_size=OPTIONS["pool"])
)


@app.task(name="noop")
async def noop() -> None:
    hit()


@app.task(name="sync_noop")
def sync_noop() -> None:
    hit()


@app.task(name="ping")
async def ping(number: int) -> None:
    started(number)


@app.task(name="nap")
async def nap() -> None:
    await nap_async()


TASKS = {task.name: task for task in (noop, sync_noop, ping, nap)}


class Procrastinate(AsyncAdapter):
    async def setup(self) -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await app.open_async()

    async def close(self) -> None:
        await app.close_async()

    async def submit(self, kind: str, number: int) -> None:
        await TASKS[kind].defer_async(**({"number": number} if kind == "ping" else {}))

    async def submit_many(self, kind: str, count: int) -> None:
        for size in chunks(count, OPTIONS["batch"]):
            await TASKS[kind].batch_defer_async(*[{} for _ in range(size)])

    def work(self) -> None:
        run(self._work())

    async def _work(self) -> None:
        async with app.open_async():
            await app.run_worker_async(concurrency=OPTIONS["concurrency"])


if __name__ == "__main__":
    main(Procrastinate())

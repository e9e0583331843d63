"""TaskLib, through its public names only. Rows and results are kept.

Options: `concurrency` of the worker, `batch` of submit_many, `client` ("sync" or "async"), and `without_triggers`,
the triggers that are switched off: the yardstick for what notifications cost.
"""

from __future__ import annotations

import psycopg
from adapter import DATABASE_URL, OPTIONS, AsyncAdapter, SyncAdapter, chunks, hit, main, nap_async, run, started
from psycopg import sql

from tasklib import AsyncClient, Client, Config, Worker, task
from tasklib.migrations import migrate

BATCH = OPTIONS.get("batch", 5000)


@task
async def noop() -> None:
    hit()


@task
def sync_noop() -> None:
    hit()


@task
async def ping(number: int) -> None:
    started(number)


@task
async def nap() -> None:
    await nap_async()


TASKS = {function.name: function for function in (noop, sync_noop, ping, nap)}


def create_tables() -> None:
    """TaskLib's tables, without the triggers that are to be left out."""
    migrate(Config(DATABASE_URL))
    with psycopg.connect(DATABASE_URL, autocommit=True) as connection:
        for trigger in OPTIONS.get("without_triggers", ()):
            connection.execute(sql.SQL("ALTER TABLE tasks DISABLE TRIGGER {}").format(sql.Identifier(trigger)))


def work() -> None:
    """A worker with nothing around it: no log, no display."""
    run(Worker(Config(DATABASE_URL), concurrency=OPTIONS.get("concurrency", 500)).run())


def arguments(kind: str, number: int) -> dict[str, int]:
    return {"number": number} if kind == "ping" else {}


class Blocking(SyncAdapter):
    """Submits through `Client`."""

    def setup(self) -> None:
        create_tables()

    def open(self) -> None:
        self.client = Client(DATABASE_URL)
        self.client.list_tasks(limit=1)  # connects

    def close(self) -> None:
        self.client.close()

    def submit(self, kind: str, number: int) -> None:
        self.client.submit_task(TASKS[kind], **arguments(kind, number))

    def submit_many(self, kind: str, count: int) -> None:
        for size in chunks(count, BATCH):
            self.client.submit_many(TASKS[kind], [{}] * size)

    def work(self) -> None:
        work()


class Awaiting(AsyncAdapter):
    """Submits through `AsyncClient`."""

    async def setup(self) -> None:
        create_tables()

    async def open(self) -> None:
        self.client = AsyncClient(DATABASE_URL)
        await self.client.list_tasks(limit=1)  # connects

    async def close(self) -> None:
        self.client.close()

    async def submit(self, kind: str, number: int) -> None:
        await self.client.submit_task(TASKS[kind], **arguments(kind, number))

    async def submit_many(self, kind: str, count: int) -> None:
        for size in chunks(count, BATCH):
            await self.client.submit_many(TASKS[kind], [{}] * size)

    def work(self) -> None:
        work()


if __name__ == "__main__":
    main(Awaiting() if OPTIONS.get("client") == "async" else Blocking())

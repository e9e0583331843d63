"""DBOS: workflows of no steps on a queue. It has no call for many, so threads submit concurrently.

Options: `concurrency`, `pool`, `poll_seconds` of the queue, `threads` that submit.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from adapter import DATABASE_URL, OPTIONS, SyncAdapter, hit, main, nap_async, started
from dbos import DBOS, DBOSClient

URL = DATABASE_URL.replace("postgresql://", "postgresql+psycopg://")


@DBOS.workflow(name="noop")
async def noop() -> None:
    hit()


@DBOS.workflow(name="sync_noop")
def sync_noop() -> None:
    hit()


@DBOS.workflow(name="ping")
async def ping(number: int) -> None:
    started(number)


@DBOS.workflow(name="nap")
async def nap() -> None:
    await nap_async()


def launch() -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": URL,
            "log_level": "ERROR",
            "sys_db_pool_size": OPTIONS["pool"],
            "application_version": "1",
            "executor_id": str(os.getpid()),
        }
    )
    DBOS.launch()
    DBOS.register_queue(
        "bench", polling_interval_sec=OPTIONS["poll_seconds"], worker_concurrency=OPTIONS["concurrency"]
    )


class Dbos(SyncAdapter):
    def setup(self) -> None:
        launch()
        DBOS.destroy()

    def open(self) -> None:
        self.client = DBOSClient(system_database_url=URL)

    def close(self) -> None:
        self.client.destroy()

    def submit(self, kind: str, number: int) -> None:
        where = {"queue_name": "bench", "workflow_name": kind, "app_version": "1", "application_name": "bench"}
        self.client.enqueue(where, *([number] if kind == "ping" else []))

    def submit_many(self, kind: str, count: int) -> None:
        with ThreadPoolExecutor(OPTIONS["threads"]) as threads:
            list(threads.map(partial(self.submit, kind), range(count)))

    def work(self) -> None:
        launch()
        threading.Event().wait()


if __name__ == "__main__":
    main(Dbos())

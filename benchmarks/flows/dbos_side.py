"""DBOS' chain of three: a workflow of three steps on a queue. `dbos_side.py submit 500`, `dbos_side.py work`."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS, DBOSClient
from marks import mark

URL = os.environ["FLOWS_DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://")


@DBOS.step(name="first")
async def first(n: int) -> int:
    mark("begin")
    return n + 1


@DBOS.step(name="second")
async def second(n: int) -> int:
    return n + 1


@DBOS.step(name="third")
async def third(n: int) -> int:
    mark("end")
    return n + 1


@DBOS.workflow(name="three")
async def three(n: int) -> int:
    return await third(await second(await first(n)))


def launch() -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": URL,
            "log_level": "ERROR",
            "sys_db_pool_size": 20,
            "application_version": "1",
            "executor_id": str(os.getpid()),
        }
    )
    DBOS.launch()
    DBOS.register_queue("bench", polling_interval_sec=0.01, worker_concurrency=100)


def submit(count: int) -> None:
    launch()
    DBOS.destroy()
    client = DBOSClient(system_database_url=URL)
    where = {"queue_name": "bench", "workflow_name": "three", "app_version": "1", "application_name": "bench"}
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: client.enqueue(where, n), range(count)))
    client.destroy()


if __name__ == "__main__":
    if sys.argv[1] == "submit":
        submit(int(sys.argv[2]))
    else:
        launch()
        threading.Event().wait()

"""A worker of a serial queue, which is killed sooner or later. Its function marks when it begins and ends."""

from __future__ import annotations

import asyncio
import sys

import psycopg

from tasklib import Config, Worker, queue, task

LEDGER = queue("ledger", serial=True)


@task(name="serial.book", queue=LEDGER)
async def book(entry: int) -> None:
    async with await psycopg.AsyncConnection.connect(sys.argv[1], autocommit=True) as db:
        await db.execute("INSERT INTO marks (entry, what) VALUES (%s, 'begin')", (entry,))
        await asyncio.sleep(0.03)
        await db.execute("INSERT INTO marks (entry, what) VALUES (%s, 'end')", (entry,))


if __name__ == "__main__":
    config = Config(
        sys.argv[1],
        heartbeat_interval_seconds=0.3,
        heartbeat_timeout_seconds=2.0,
        sweep_interval_seconds=0.3,
        leader_lease_seconds=2.0,
        crash_limit=20,
    )
    Worker(config, concurrency=4).run_sync()

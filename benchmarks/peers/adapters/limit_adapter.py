"""The limit: the tightest loop we could write with asyncpg that still keeps rows and results. Not a product.

It claims and completes in batches on two connections at once and runs an asyncio task per row. It has no retries, no
timeouts, no leases to extend, no recovery, and it doesn't check arguments.

Options: `batch`, the most rows of a claim; `concurrency`; `threads` for synchronous tasks.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
from adapter import DATABASE_URL, OPTIONS, AsyncAdapter, chunks, hit, main, nap_async, run, started
from ids import new_id

try:
    from orjson import dumps, loads
except ImportError:  # the tests have no orjson; a measurement should
    import json

    loads = json.loads

    def dumps(value: Any) -> bytes:
        return json.dumps(value).encode()


BATCH = OPTIONS.get("batch", 500)
CONCURRENCY = OPTIONS.get("concurrency", 2000)
THREADS = OPTIONS.get("threads", 8)
COPY_BATCH = OPTIONS.get("copy_batch", 5000)
MOST_COMPLETED = 2000
POLL_SECONDS = 1.0

INSERT = "INSERT INTO tasks (id, name, args, kwargs, priority) VALUES ($1, $2, $3, $4, $5)"
CLAIM = """
WITH claimed AS (
    SELECT id FROM tasks WHERE state = 'pending' AND scheduled_at <= now()
    ORDER BY priority DESC, scheduled_at LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE tasks SET state = 'running', started_at = now(), worker_id = $2, locked_until = now() + interval '60 s'
FROM claimed WHERE tasks.id = claimed.id
RETURNING tasks.id, name, args, kwargs, retry_count, max_retries, timeout_seconds
"""
COMPLETE = """
UPDATE tasks SET state = 'completed', completed_at = now(), result = done.result, locked_until = NULL
FROM unnest($1::uuid[], $2::jsonb[]) AS done (id, result)
WHERE tasks.id = done.id AND tasks.state = 'running' AND tasks.worker_id = $3
"""


async def noop() -> None:
    hit()


def sync_noop() -> None:
    hit()


async def ping(number: int) -> None:
    started(number)


ASYNC_TASKS: dict[str, Callable[..., Any]] = {"noop": noop, "ping": ping, "nap": nap_async}


class Loop:
    """Claims, runs and completes, each as fast as the others let it."""

    def __init__(self) -> None:
        self.worker = f"worker-{os.getpid()}"
        self.in_flight = 0
        self.done: list[tuple[Any, str]] = []
        self.woken, self.has_room, self.has_done = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.for_threads: queue.SimpleQueue[asyncpg.Record] = queue.SimpleQueue()

    async def run(self) -> None:
        self.loop = asyncio.get_running_loop()
        claims, completions = await asyncpg.connect(DATABASE_URL), await asyncpg.connect(DATABASE_URL)
        await completions.add_listener("tasks", lambda *_: self.woken.set())
        for _ in range(THREADS):
            threading.Thread(target=self._run_in_thread, daemon=True).start()
        await asyncio.gather(
            self._claim(await claims.prepare(CLAIM)), self._complete(await completions.prepare(COMPLETE))
        )

    async def _claim(self, statement: Any) -> None:
        while True:
            room = CONCURRENCY - self.in_flight
            if room < min(BATCH, CONCURRENCY // 2):  # small claims are dear: wait until a large one is possible
                self.has_room.clear()
                await self.has_room.wait()
                continue
            self.woken.clear()
            rows = await statement.fetch(min(BATCH, room), self.worker)
            self.in_flight += len(rows)
            for row in rows:
                if row["name"] == "sync_noop":
                    self.for_threads.put(row)
                else:
                    self.loop.create_task(self._run(row))
            if not rows:
                await self._sleep()

    async def _sleep(self) -> None:
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self.woken.wait()
        except TimeoutError:
            pass

    async def _run(self, row: asyncpg.Record) -> None:
        result = await ASYNC_TASKS[row["name"]](*loads(row["args"]), **loads(row["kwargs"]))
        self._finished(row["id"], dumps(result).decode())

    def _run_in_thread(self) -> None:
        while True:
            row = self.for_threads.get()
            result = sync_noop(*loads(row["args"]), **loads(row["kwargs"]))
            self.loop.call_soon_threadsafe(self._finished, row["id"], dumps(result).decode())

    def _finished(self, id_: Any, result: str) -> None:
        self.done.append((id_, result))
        self.in_flight -= 1
        self.has_done.set()
        self.has_room.set()

    async def _complete(self, statement: Any) -> None:
        while True:
            if not self.done:
                self.has_done.clear()
                await self.has_done.wait()
            batch, self.done = self.done[:MOST_COMPLETED], self.done[MOST_COMPLETED:]
            await statement.fetch([id_ for id_, _ in batch], [result for _, result in batch], self.worker)


class Limit(AsyncAdapter):
    """Submits by a prepared INSERT and by COPY."""

    async def setup(self) -> None:
        connection = await asyncpg.connect(DATABASE_URL)
        await connection.execute(Path(__file__).with_name("limit_table.sql").read_text())
        await connection.close()

    async def open(self) -> None:
        self.connection = await asyncpg.connect(DATABASE_URL)
        self.insert = await self.connection.prepare(INSERT)

    async def close(self) -> None:
        await self.connection.close()

    async def submit(self, kind: str, number: int) -> None:
        await self.insert.fetch(new_id(), kind, f"[{number}]" if kind == "ping" else "[]", "{}", 0)

    async def submit_many(self, kind: str, count: int) -> None:
        for size in chunks(count, COPY_BATCH):
            await self.connection.copy_records_to_table(
                "tasks",
                records=[(new_id(), kind, "[]", "{}", 0) for _ in range(size)],
                columns=["id", "name", "args", "kwargs", "priority"],
            )

    def work(self) -> None:
        run(Loop().run())


if __name__ == "__main__":
    main(Limit())

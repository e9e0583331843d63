"""Yardsticks for submission: what a driver does with TaskLib's own table, all its indexes and constraints included.

Option `how`: "psycopg", "psycopg-async" or "asyncpg" insert one row per statement; "copy" gives rows to psycopg's
COPY, "copy-text" gives it text that is formatted already. Nothing is checked, and no worker is notified.
"""

from __future__ import annotations

import asyncpg
import psycopg
from adapter import DATABASE_URL, OPTIONS, AsyncAdapter, SyncAdapter, chunks, main
from ids import new_id
from tasklib_adapter import BATCH, create_tables

COLUMNS = "id, name, queue, kwargs, max_retries, timeout_seconds, priority, tags, required_capabilities, trace_context"
VALUES = ("default", "{}", 3, None, 0, "{}", [], None)
"""What TaskLib writes for a task without arguments, behind its id and name."""

INSERT = f"INSERT INTO tasks ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
INSERT_NUMBERED = f"INSERT INTO tasks ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
COPY = f"COPY tasks ({COLUMNS}) FROM STDIN"


class Psycopg(SyncAdapter):
    """One INSERT after another."""

    def setup(self) -> None:
        create_tables()

    def open(self) -> None:
        self.connection = psycopg.connect(DATABASE_URL, autocommit=True)

    def close(self) -> None:
        self.connection.close()

    def submit(self, kind: str, number: int) -> None:
        self.connection.execute(INSERT, (new_id(), kind, *VALUES))


class Copy(Psycopg):
    """Rows that psycopg formats."""

    def submit_many(self, kind: str, count: int) -> None:
        for size in chunks(count, BATCH):
            with self.connection.cursor().copy(COPY) as copy:
                for _ in range(size):
                    copy.write_row((new_id(), kind, *VALUES))


class CopyText(Psycopg):
    """Text in blocks: what the server can take in, with the driver out of the way."""

    def submit_many(self, kind: str, count: int) -> None:
        behind_id = f"\t{kind}\tdefault\t{{}}\t3\t\\N\t0\t{{}}\t{{}}\t\\N\n"
        for size in chunks(count, BATCH):
            with self.connection.cursor().copy(COPY) as copy:
                copy.write("".join([f"{new_id()}{behind_id}" for _ in range(size)]))


class PsycopgAsync(AsyncAdapter):
    """One INSERT after another, awaited."""

    async def setup(self) -> None:
        create_tables()

    async def open(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(DATABASE_URL, autocommit=True)

    async def close(self) -> None:
        await self.connection.close()

    async def submit(self, kind: str, number: int) -> None:
        await self.connection.execute(INSERT, (new_id(), kind, *VALUES))


class Asyncpg(AsyncAdapter):
    """The same through the other driver, prepared beforehand."""

    async def setup(self) -> None:
        create_tables()

    async def open(self) -> None:
        self.connection = await asyncpg.connect(DATABASE_URL)
        self.insert = await self.connection.prepare(INSERT_NUMBERED)

    async def close(self) -> None:
        await self.connection.close()

    async def submit(self, kind: str, number: int) -> None:
        await self.insert.fetch(new_id(), kind, *VALUES)


WAYS: dict[str, type[SyncAdapter] | type[AsyncAdapter]] = {
    "psycopg": Psycopg,
    "psycopg-async": PsycopgAsync,
    "asyncpg": Asyncpg,
    "copy": Copy,
    "copy-text": CopyText,
}

if __name__ == "__main__":
    main(WAYS[OPTIONS["how"]]())

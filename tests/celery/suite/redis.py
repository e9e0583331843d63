"""The commands of Redis by which Celery's tests observe their tasks, on a table in PostgreSQL."""

from __future__ import annotations

import os
import time
from typing import Any

import psycopg

TABLE = "CREATE TABLE IF NOT EXISTS public.suite_items (id bigserial, key text NOT NULL, item text NOT NULL)"


class StrictRedis:
    def __init__(self, **_: Any) -> None:
        self._connection = psycopg.connect(os.environ["TASKLIB_DATABASE_URL"], autocommit=True)

    def _run(self, statement: Any, *values: Any) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def rpush(self, key: str, item: Any) -> None:
        text = item.decode() if isinstance(item, bytes) else str(item)
        self._run("INSERT INTO public.suite_items (key, item) VALUES (%s, %s) RETURNING 1", key, text)

    def incr(self, key: str) -> None:
        self.rpush(key, "")

    def get(self, key: str) -> str | None:
        return str(self.llen(key)) if self.exists(key) else None

    def llen(self, key: str) -> int:
        return int(self._run("SELECT count(*) FROM public.suite_items WHERE key = %s", key)[0][0])

    def exists(self, key: str) -> bool:
        return self.llen(key) > 0

    def lrange(self, key: str, first: int, last: int) -> list[bytes]:
        rows = self._run("SELECT item FROM public.suite_items WHERE key = %s ORDER BY id", key)
        return [row[0].encode() for row in rows][first : last + 1 or None]

    def delete(self, *keys: Any) -> None:
        texts = [key.decode() if isinstance(key, bytes) else str(key) for key in keys]
        self._run("DELETE FROM public.suite_items WHERE key = ANY(%s) RETURNING 1", texts)

    def blpop(self, key: str, timeout: float) -> tuple[bytes, bytes] | None:
        take = (
            "DELETE FROM public.suite_items WHERE id = "
            "(SELECT min(id) FROM public.suite_items WHERE key = %s) RETURNING item"
        )
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if rows := self._run(take, key):
                return key.encode(), rows[0][0].encode()
            time.sleep(0.05)
        return None

    def execute_command(self, *_: Any) -> list[Any]:
        return []  # PUBSUB CHANNELS: there are none

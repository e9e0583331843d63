"""Submits to one shard, and logs what it was told."""

from __future__ import annotations

import threading
from uuid import UUID

import psycopg

from proof.chaos import tasks
from proof.chaos.scene import Scene
from proof.history.actors import ActorLog
from tasklib import Client, Config
from tasklib.errors import DatabaseUnavailable

_PAUSE_SECONDS = 0.5
_BATCH = 10


class Submitter:
    """One producer. Marks are unique, so that what is there twice shows."""

    def __init__(self, here: Scene, number: int, config: Config) -> None:
        self._log = ActorLog(here.log_directory, f"submitter-{number}")
        self._client = Client(config)
        self._number = number
        self._marks = 0

    def run(self, ended: threading.Event) -> None:
        """A batch and a task with a key, again and again."""
        with self._client:
            while not ended.wait(_PAUSE_SECONDS):
                self._submit(self._batch)
                self._submit(self._keyed)

    def _submit(self, way: object) -> None:
        call = self._log.invoke("submit", shard=self._number)
        try:
            ids: list[UUID] = way()  # type: ignore[operator]
        except (DatabaseUnavailable, psycopg.Error) as e:
            self._log.answer("submit", call, "unknown", shard=self._number, error=str(e)[:200])
        else:
            self._log.answer("submit", call, "ok", shard=self._number, tasks=[str(id_) for id_ in ids])

    def _mark(self) -> str:
        self._marks += 1
        return f"{self._number}-{self._marks}"

    def _batch(self) -> list[UUID]:
        plain = [tasks.short.bind(mark=self._mark()) for _ in range(_BATCH)]
        return self._client.on_shard(self._number).submit_many(
            [
                *plain,
                tasks.slow.bind(mark=self._mark(), seconds=0.5),
                tasks.flaky.bind(mark=self._mark(), failures=2),
                tasks.threaded.bind(mark=self._mark(), seconds=0.1),
                tasks.once.bind(mark=self._mark(), seconds=0.0),
                tasks.transactional.bind(mark=self._mark()),  # type: ignore[call-arg]
            ]
        )

    def _keyed(self) -> list[UUID]:
        """The same key twice: one task."""
        mark = self._mark()
        ids = [
            self._client.on_shard(self._number).submit_task(tasks.short, mark=mark, idempotency_key=mark)
            for _ in range(2)
        ]
        if len(set(ids)) > 1:
            self._log.write(op="violation", invariant="I1", detail=f"the key {mark} gave {len(set(ids))} tasks")
        return ids[:1]

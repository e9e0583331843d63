"""Submits keys over all shards, each several times, and logs what it was told."""

from __future__ import annotations

import threading
from uuid import UUID

import psycopg

from proof.chaos import tasks
from proof.chaos.scene import Scene
from proof.history.actors import ActorLog
from tasklib import Client, Config
from tasklib.errors import DatabaseUnavailable
from tasklib.tasks.ids import shard_of

_PAUSE_SECONDS = 0.1
_AGAIN = (0, 1, 30, 300)
"""A key is submitted again after so many others: also after the owner of the key has changed."""


class KeyedSubmitter:
    """One producer of keys. Two of the same name would share them."""

    def __init__(self, here: Scene, name: str, config: Config) -> None:
        self._log = ActorLog(here.log_directory, name)
        self._name = name
        self._client = Client(config)
        self._tasks: dict[str, UUID] = {}

    def run(self, ended: threading.Event) -> None:
        """A new key and some older ones, again and again."""
        number = 0
        with self._client:
            while not ended.wait(_PAUSE_SECONDS):
                for before in _AGAIN:
                    if number >= before:
                        self._submit(f"{self._name} {number - before}")
                number += 1

    def _submit(self, key: str) -> None:
        call = self._log.invoke("submit", key=key)
        try:
            id_ = self._client.submit_task(tasks.short, mark=key, idempotency_key=key)
        except (DatabaseUnavailable, psycopg.Error) as e:
            self._log.answer("submit", call, "unknown", error=str(e)[:200])
            return
        self._log.answer("submit", call, "ok", shard=shard_of(id_), tasks=[str(id_)])
        if self._tasks.setdefault(key, id_) != id_:
            detail = f"the key {key} gave {self._tasks[key]} and {id_}"
            self._log.write(op="violation", invariant="I18", detail=detail)

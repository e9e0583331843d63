"""Sends the signals that durable tasks wait for, each under a key, in order; some twice."""

from __future__ import annotations

import os
import random
import sys
import time
from contextlib import suppress
from uuid import UUID

import psycopg

from proof.chaos.scene import Scene, scene
from proof.history.actors import ActorLog
from tasklib import Client
from tasklib.errors import DatabaseUnavailable

_WAITING = """
    SELECT id, COALESCE(signals_sent, 0)::int, (kwargs ->> 'signals')::int FROM tasks
    WHERE queue = 'default' AND name = 'chaos.order' AND state IN ('pending', 'failed') AND waits_for IS NULL
      AND COALESCE(signals_sent, 0) < (kwargs ->> 'signals')::int
    LIMIT 200
"""


class Signaller:
    """One sender. A signal is sent again until it is acknowledged, and only then the next one."""

    def __init__(self, here: Scene, name: str) -> None:
        self._url = here.direct_url
        self._log = ActorLog(here.log_directory, f"{name}-{os.getpid()}")
        self._client = Client(here.config(proxied=True))
        self._random = random.Random(f"{here.seed} {name}")

    def run(self) -> None:
        while True:
            with suppress(DatabaseUnavailable, psycopg.Error):
                with psycopg.connect(self._url, autocommit=True, connect_timeout=3) as connection:
                    found = connection.execute(_WAITING).fetchall()
                self._random.shuffle(found)
                for task, sent, wanted in found:
                    self._send(task, range(sent, wanted))
            time.sleep(0.2)

    def _send(self, task: UUID, numbers: range) -> None:
        for number in numbers:
            for _ in range(self._random.choice([1, 1, 2])):
                call = self._log.invoke("signal", task=str(task), key=str(number))
                try:
                    is_stored = self._client.signal(task, "go", number, key=str(number))
                except DatabaseUnavailable:
                    self._log.answer("signal", call, "unknown")
                    raise
                answer = "ok" if is_stored else "fail"  # it has ended meanwhile
                self._log.answer("signal", call, answer, task=str(task), key=str(number))


if __name__ == "__main__":
    Signaller(scene(), sys.argv[1]).run()

"""Submits through every backend and logs what it was told: `ok` with the ids, or `unknown`."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from uuid import UUID

import psycopg

from proof.chaos import flows, limited_tasks, tasks
from proof.chaos.scene import Scene, scene
from proof.history.actors import ActorLog
from tasklib import Client
from tasklib.errors import DatabaseUnavailable
from tasklib.tasks.submitter import Submission

BATCH = 250


class Submitter:
    """One producer. Marks are unique, so that what is there twice shows."""

    def __init__(self, here: Scene, name: str, *, proxied: bool) -> None:
        self._here = here
        self._log = ActorLog(here.log_directory, f"{name}-{os.getpid()}")
        self._client = Client(here.config(proxied=proxied))
        self._url = here.proxied_url if proxied else here.direct_url
        self._random = random.Random(f"{here.seed} {name}")
        self._prefix = f"{name}-{os.getpid()}"
        self._marks = 0
        self._flows = flows.Flows(self._random)

    def run(self) -> None:
        """Submit until told to stop; wait while the backlog is deep."""
        ways: list[tuple[int, Callable[[], list[UUID]]]] = [
            (10, self._batch),
            (6, self._one),
            (3, self._keyed),
            (2, self._in_a_transaction),
        ]
        if self._here.flows:
            ways = [(200, self._flow), (20, self._flow_in_a_transaction), (6, self._one), (1, self._keyed)]
        weights, backends = zip(*ways, strict=True)
        began = time.monotonic()
        while True:
            [backend] = self._random.choices(backends, weights)
            self._submit(backend)
            self._wait_while_deep()
            # Half of the rate: there are two of us.
            time.sleep(max(0.0, min(1.0, began + self._marks / (self._here.rate / 2) - time.monotonic())))

    def _submit(self, backend: Callable[[], list[UUID]]) -> None:
        call = self._log.invoke("submit", backend=backend.__name__)
        try:
            ids = backend()
        except (DatabaseUnavailable, psycopg.Error) as e:
            self._log.answer("submit", call, "unknown", error=str(e)[:200])
            time.sleep(0.1)
        else:
            self._log.answer("submit", call, "ok", tasks=[str(id_) for id_ in ids])

    def _mark(self) -> str:
        self._marks += 1
        return f"{self._prefix}-{self._marks}"

    def _any(self) -> Submission:
        choice, mark = self._random.random(), self._mark()
        if self._here.limits and choice < 0.9:
            return limited_tasks.any_limited(self._random, mark)
        if choice < 0.65:
            return tasks.short.bind(mark=mark)
        if choice < 0.85:
            return tasks.unretried.bind(mark=mark)
        if choice < 0.90:
            return tasks.once.bind(mark=mark, seconds=self._random.choice([0.0, 0.0, 0.0, 0.2]))
        if choice < 0.93:
            return tasks.slow.bind(mark=mark, seconds=self._random.uniform(0.05, 1.0))
        if choice < 0.95:
            return tasks.threaded.bind(mark=mark, seconds=self._random.uniform(0.0, 0.3))
        if choice < 0.96:
            return tasks.in_process.bind(mark=mark, seconds=self._random.uniform(0.0, 0.2))
        if choice < 0.98:
            return tasks.flaky.bind(mark=mark, failures=self._random.randrange(5))
        if choice < 0.981:
            return tasks.deadly.bind(mark=mark, times=self._random.randrange(3))
        if choice < 0.982:
            return tasks.hung.bind(mark=mark)
        return tasks.transactional.bind(mark=mark)  # type: ignore[call-arg]

    def _batch(self) -> list[UUID]:
        return self._client.submit_many([self._any() for _ in range(20 if self._here.limits else BATCH)])

    def _flow(self) -> list[UUID]:
        return flows.submitted(self._client, self._flows.any(self._mark()))

    def _flow_in_a_transaction(self) -> list[UUID]:
        with psycopg.connect(self._url, connect_timeout=3) as connection:
            run = self._client.submit_flow(self._flows.any(self._mark()), connection=connection)
            ids = [UUID(str(id_)) for ids in run.tasks.values() for id_ in ids]
            for task_id in ids:
                connection.execute("INSERT INTO outbox VALUES (%s)", (task_id,))
            connection.commit()
        return ids

    def _one(self) -> list[UUID]:
        return [self._client.submit(self._any())]

    def _keyed(self) -> list[UUID]:
        """The same key two or three times: one task."""
        mark = self._mark()
        ids = [
            self._client.submit_task(tasks.short, mark=mark, idempotency_key=mark)
            for _ in range(self._random.choice([2, 3]))
        ]
        if len(set(ids)) > 1:
            self._log.write(op="violation", invariant="I1", detail=f"the key {mark} gave {len(set(ids))} tasks")
        return ids[:1]

    def _in_a_transaction(self) -> list[UUID]:
        with psycopg.connect(self._url, connect_timeout=3) as connection:
            task_id = self._client.submit_task(tasks.short, mark=self._mark(), connection=connection)
            connection.execute("INSERT INTO outbox VALUES (%s)", (task_id,))
            connection.commit()
        return [task_id]

    def _wait_while_deep(self) -> None:
        if self._random.random() > 0.1:
            return
        query = "SELECT count(*) FROM (SELECT FROM tasks WHERE state IN ('pending', 'failed') LIMIT %s) AS waiting"
        while True:
            try:
                with psycopg.connect(self._here.direct_url, autocommit=True, connect_timeout=3) as connection:
                    row = connection.execute(query, (self._here.deep,)).fetchone()
                if row is not None and row[0] < self._here.deep:
                    return
            except psycopg.Error:
                pass
            time.sleep(0.3)


if __name__ == "__main__":
    Submitter(scene(), sys.argv[1], proxied=sys.argv[2] == "proxied").run()

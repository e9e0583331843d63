"""Cancels, replays and pauses; and offers writes that must be refused: with tokens and terms of the past."""

from __future__ import annotations

import os
import random
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

import psycopg

from proof.chaos import flows, limited_tasks, schedules
from proof.chaos.scene import SETTINGS, Scene, scene
from proof.history.actors import ActorLog
from tasklib import Client
from tasklib.db.database import Database
from tasklib.errors import DatabaseUnavailable, TaskLibError
from tasklib.store import maintenance, settle
from tasklib.store.fleet import Term
from tasklib.store.settle import Completion, Failure, Lease


class Operator:
    """One restless person with every right, and one liar."""

    def __init__(self, here: Scene, name: str) -> None:
        self._log = ActorLog(here.log_directory, f"{name}-{os.getpid()}")
        self._client = Client(here.config())
        self._database = Database(here.config())
        self._url = here.direct_url
        self._has_schedules, self._has_flows, self._has_limits = here.schedules > 0, here.flows, here.limits
        self._random = random.Random(f"{here.seed} {name}")
        self._schedules = schedules.Restless(self._client, self._database, self._random)
        self._flows = flows.Meddler(self._client, self._rows, self._random)
        self._cancelled: list[UUID] = []

    def run(self) -> None:
        operations = [self._cancel, self._replay, self._pause, self._offer_stale, self._offer_old_term]
        weights = [4, 2, 1, 4, 1]
        if self._has_schedules:
            operations, weights = [*operations, self._schedules.once], [*weights, 4]
        if self._has_flows:
            operations, weights = [*operations, self._flows.cancel, self._flows.replay], [*weights, 3, 5]
        if self._has_limits:
            change = partial(limited_tasks.change, self._client, self._random)
            operations, weights = [*operations, change], [*weights, 3]
        while True:
            [operation] = self._random.choices(operations, weights)
            with suppress(DatabaseUnavailable, psycopg.Error, TaskLibError):
                operation()
            time.sleep(0.1)

    def _rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._url, autocommit=True, connect_timeout=3) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def _cancel(self) -> None:
        state = self._random.choice(["pending", "running", "failed"])
        for (task,) in self._rows(
            "SELECT id FROM tasks WHERE state = %s LIMIT %s", state, self._random.randrange(1, 6)
        ):
            self._client.cancel_task(task)
            self._cancelled.append(task)

    def _replay(self) -> None:
        found = self._rows(
            "SELECT id FROM tasks WHERE state = 'dead_letter' AND name NOT IN ('chaos.transactional', 'chaos.hung') "
            "AND name NOT LIKE 'chaos.limited.%%' "  # a replayed task comes into a serial order anew
            "ORDER BY completed_at DESC LIMIT 3"
        )
        found += self._rows(
            "SELECT id FROM tasks WHERE id = ANY(%s) AND name <> 'chaos.transactional' "
            # A join that is about to run would miss the result of a task that had completed. So in a flow neither such
            # a task is replayed, nor one that may complete before the replay.
            "AND (flow IS NULL OR (state IN ('cancelled', 'dead_letter') AND cancel_requested_at IS NOT NULL)) "
            "AND name NOT LIKE 'chaos.limited.%%'",
            self._cancelled[-3:],
        )
        for (task,) in found:
            with suppress(TaskLibError):  # it may not have ended yet
                self._client.replay_task(task)

    def _pause(self) -> None:
        self._client.pause(name="chaos.slow")
        try:
            time.sleep(self._random.uniform(0.2, 1.0))
        finally:
            while True:  # a pause without an end would keep the run from becoming quiet
                with suppress(DatabaseUnavailable, psycopg.Error):
                    self._client.resume(name="chaos.slow")
                    break
                time.sleep(0.5)

    def _offer_stale(self) -> None:
        """Settle attempts that are over: of tasks that run elsewhere by now, wait, or are finished."""
        which = self._random.choice(
            [
                "tasks WHERE state = 'running' AND lease_token > 1",
                "tasks WHERE state = 'failed' AND lease_token > 0",
                "tasks TABLESAMPLE SYSTEM (1) WHERE state IN ('completed', 'cancelled') AND lease_token > 0",
            ]
        )
        found = self._rows(f"SELECT id::text, lease_token, state, COALESCE(worker_id, '') FROM {which} LIMIT 20")
        if not found:
            return
        # In the name of the worker that holds them now: nothing but the token is wrong.
        worker = found[0][3]
        leases = [Lease(id_, token - (state == "running")) for id_, token, state, holder in found if holder == worker]
        kind = self._random.choice(["complete", "fail", "release", "stop", "extend"])
        call = self._log.invoke("stale", kind=kind)
        accepted = len(self._offer(kind, sorted(leases), worker))
        tasks = [lease.id for lease in leases][:3] if accepted else []
        self._log.answer("stale", call, "ok", kind=kind, offered=len(leases), accepted=accepted, tasks=tasks)

    def _offer(self, kind: str, leases: list[Lease], worker: str) -> Any:
        match kind:
            case "complete":
                return self._database.run(
                    settle.complete([Completion(lease, '{"token": -1}') for lease in leases], worker)
                )
            case "fail":
                failures = [Failure(lease, "stale", "error", 0.0) for lease in leases]
                return self._database.run(settle.fail(failures, worker, SETTINGS["crash_limit"]))
            case "release":
                return self._database.run(settle.release(leases, worker))
            case "stop":
                return self._database.run(settle.stop([(lease, "stale") for lease in leases], worker))
            case _:
                return self._database.run(settle.extend(leases, worker, 60.0))

    def _offer_old_term(self) -> None:
        """A leader of an earlier term sweeps once more."""
        found = self._rows(
            "SELECT holder, term FROM terms WHERE term < (SELECT max(term) FROM terms) ORDER BY random() LIMIT 1"
        )
        for holder, term in found:
            old = Term(holder, term)
            call = self._log.invoke("old term", term=term)
            rescued = self._database.run(maintenance.rescue(old, SETTINGS["crash_limit"], 100))
            overdue = self._database.run(maintenance.fail_overdue(old, 0.0, 0.0, 100))
            fired = self._schedules.offer_old_term(old)
            self._log.answer("old term", call, "ok", term=term, accepted=len(rescued) + len(overdue) + fired)


if __name__ == "__main__":
    Operator(scene(), sys.argv[1]).run()

"""Claiming over HTTP: one long poll after the other, for as many tasks as there are free slots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_core import to_json

from tasklib.config import Config
from tasklib.db.reconnecting import backoff
from tasklib.errors import DatabaseUnavailable
from tasklib.events import Events, TasksClaimed
from tasklib.stats import StatsCollector
from tasklib.store.claim import Claimed, Served
from tasklib.worker.attempt import Attempt
from tasklib.worker.backend import Start
from tasklib.worker.http_connection import HttpConnection, Refused
from tasklib.worker.slots import BATCH, Slots
from tasklib.worker.wakeup import Wakeup

_LAST_POLL_SECONDS = 2.0
"""How long a poll under way may go on after the worker was told to stop: the server ends it when it hears of that."""
_DOUBT_SECONDS = 60.0
"""For how long after a lost answer the server is asked what else is ours: an abandoned poll may still claim."""


class Poller:
    """Asks for tasks until told to stop; `burst` stops by itself when nothing is due and nothing runs."""

    def __init__(
        self,
        config: Config,
        db: HttpConnection,
        slots: Slots,
        wakeup: Wakeup,
        events: Events,
        *,
        served: Callable[[], Served],
        worker_id: Callable[[], str],
        start: Start,
        held: Callable[[], Sequence[Attempt]],
        collector: StatsCollector,
        wait_seconds: float,
        burst: bool,
    ) -> None:
        self._config = config
        self._db = db
        self._slots = slots
        self._wakeup = wakeup
        self._events = events
        self._served = served
        self._worker_id = worker_id
        self._start = start
        self._held = held
        self._collector = collector
        self._wait_seconds = wait_seconds
        self._burst = burst
        self._stopped = False
        self._given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._doubt_until = 0.0
        self._names = frozenset[str]()

    def stop(self) -> None:
        self._stopped = True
        asyncio.get_running_loop().call_later(_LAST_POLL_SECONDS, self._give_up)
        self._slots.nudge()

    async def run(self) -> None:
        failures = 0
        while not self._stopped:
            short = bool(self._names) and self._slots.prefetch.are_short(self._names)
            short = short and not self._served().at_most_once  # a poll may bring any of them
            self._slots.ahead = self._slots.prefetch.count if short else 0
            if not self._slots.worth_claiming:
                await self._slots.changed()
                continue
            was_idle = self._slots.taken == 0
            try:
                found = await self._poll(min(self._slots.room, BATCH if short else self._slots.size, BATCH))
                failures = 0
            except (DatabaseUnavailable, Refused) as e:
                self._doubt_until = time.monotonic() + self._wait_seconds + _DOUBT_SECONDS
                if isinstance(e, Refused):
                    self._wakeup.on_fleet_change()  # the heartbeat will find out that we were declared dead
                await asyncio.sleep(backoff(failures))
                failures += 1
                continue
            if not found and self._burst:
                await self._rest(was_idle=was_idle)

    async def _poll(self, asked: int) -> bool:
        before, worker_id = time.monotonic(), self._worker_id()
        host: dict[str, Any] = {
            "available_capacity": asked,
            "wait_seconds": self._wait_seconds,
            "reports_begin": True,
        }
        if before < self._doubt_until:
            leases = {(a.claimed.id, a.claimed.token) for a in self._held() if a.worker_id == worker_id}
            host["holding"] = [{"task_id": id_, "lease_token": token} for id_, token in leases]
        answer = await self._answer(worker_id, host)
        if answer is None or not answer["tasks"]:
            return False
        claimed = [_claimed(task) for task in answer["tasks"]]
        self._names = frozenset(c.name for c in claimed)
        self._wakeup.busy()
        self._slots.take(len(claimed))
        self._collector.claimed(claimed)
        if self._events.routine:
            self._events.emit_routine(TasksClaimed(asked, len(claimed)))
        # The leases began so much after the request came, and that was after we had sent it.
        self._start(claimed, worker_id, before + answer["waited_seconds"] + answer["lease_seconds"])
        return True

    async def _answer(self, worker_id: str, host: dict[str, Any]) -> Any:
        """What the server says; None if it isn't worth waiting for any more. Leaving gives back what that brings."""
        asking = asyncio.ensure_future(
            self._db.ask("POST", f"/{worker_id}/poll", host, wait_seconds=self._wait_seconds)
        )
        try:
            await asyncio.wait({asking, self._given_up}, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            asking.cancel()

    def _give_up(self) -> None:
        if not self._given_up.done():
            self._given_up.set_result(None)

    async def _rest(self, *, was_idle: bool) -> None:
        # What was held when we asked may have been given back since, and be due again.
        if was_idle:
            self._stopped = True
        elif self._slots.taken:
            await self._slots.changed()


def _claimed(task: dict[str, Any]) -> Claimed:
    trace = task["trace_context"]
    return Claimed(
        id=task["task_id"],
        name=task["task_type"],
        kwargs=to_json(task["parameters"]).decode(),
        token=task["lease_token"],
        retry_count=task["attempt"] - task["crash_count"] - 1,
        max_retries=task["max_attempts"] - task["crash_count"] - 1,
        timeout_seconds=task["timeout_seconds"],
        crash_count=task["crash_count"],
        priority=task["priority"],
        queue=task["queue"],
        required_capabilities="",
        trace_context=None if trace is None else to_json(trace).decode(),
        due="",
        effective_priority=task["effective_priority"],
    )

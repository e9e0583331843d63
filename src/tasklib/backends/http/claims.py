"""Claiming over HTTP: one long poll after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from pydantic_core import to_json

from tasklib.backends.backend import ClaimHost, Found
from tasklib.errors import DatabaseUnavailable
from tasklib.http.connection import Refused, WorkerConnection
from tasklib.store.claim import Claimed

_LAST_POLL_SECONDS = 2.0
"""How long a poll under way may go on after the worker was told to stop: the server ends it when it hears of that."""
_AHEAD_SECONDS = 0.1
"""How long a poll waits ahead of the slots: it can't bring tasks behind limits, though a slot may become free."""
_DOUBT_SECONDS = 60.0
"""For how long after a lost answer the server is asked what else is ours: an abandoned poll may still claim."""


class HttpClaims:
    """Polls a server, which claims for this worker and sleeps for it."""

    stay_awake_after = None
    needs_a_slot = False

    def __init__(self, db: WorkerConnection, host: ClaimHost, wait_seconds: float, look: Callable[[], None]) -> None:
        self._db = db
        self._host = host
        self._wait_seconds = wait_seconds
        self._look = look
        self._poll: asyncio.Timeout | None = None
        self._given_up = False
        self._doubt_until = 0.0
        self._names = frozenset[str]()

    @property
    def goes_on(self) -> bool:
        return self.are_short and not self._host.served.at_most_once  # a poll may bring any of them

    @property
    def are_short(self) -> bool:
        return bool(self._names) and self._host.are_short(self._names)

    async def claim(self, limit: int) -> Found:
        before, worker_id, free = time.monotonic(), self._host.worker_id, min(limit, self._host.free_slots)
        body: dict[str, Any] = {
            "available_capacity": limit,
            "free_slots": free,
            "wait_seconds": self._wait_seconds if free else min(_AHEAD_SECONDS, self._wait_seconds),
            "reports_begin": True,
        }
        if before < self._doubt_until:
            body["holding"] = [{"task_id": lease.id, "lease_token": lease.token} for lease in self._host.held()]
        answer = await self._answer(worker_id, body)
        if answer is None:
            return Found([], worker_id, 0.0)
        claimed = [_claimed(task) for task in answer["tasks"]]
        self._names = frozenset(c.name for c in claimed)
        # The leases began so much after the request came, and that was after we had sent it.
        return Found(claimed, worker_id, before + answer["waited_seconds"] + answer["lease_seconds"])

    async def rest(self) -> None:
        """The poll itself has waited."""

    async def counted(self) -> None:
        """The server does, before it answers a poll that doesn't wait."""

    async def pass_on(self) -> None:
        """The server does, for each worker that doesn't poll."""

    async def leave(self) -> None:
        """The server notices that no poll follows."""

    async def stay_awake(self) -> None:
        """The server sees that no poll comes."""

    def lost(self) -> None:
        self._doubt_until = time.monotonic() + self._wait_seconds + _DOUBT_SECONDS

    def stop(self) -> None:
        asyncio.get_running_loop().call_later(_LAST_POLL_SECONDS, self._give_up)

    async def _answer(self, worker_id: str, body: dict[str, Any]) -> Any:
        """What the server says; None if it isn't worth waiting for any more. Leaving gives back what that brings."""
        if self._given_up:
            return None
        try:
            async with asyncio.timeout(None) as self._poll:
                return await self._db.ask("POST", f"/{worker_id}/poll", body, wait_seconds=self._wait_seconds)
        except TimeoutError:
            return None
        except Refused as e:
            self._look()  # the heartbeat will find out that we were declared dead
            raise DatabaseUnavailable(str(e)) from e
        finally:
            self._poll = None

    def _give_up(self) -> None:
        self._given_up = True
        if self._poll is not None:
            self._poll.reschedule(asyncio.get_running_loop().time())


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

"""One attempt at a task, from the claim to its outcome."""

from __future__ import annotations

import asyncio
import json
from enum import StrEnum
from typing import Any
from uuid import UUID

from tasklib.store.claim import Claimed
from tasklib.store.settle import Lease
from tasklib.tasks.context import TaskContext
from tasklib.tasks.function import TaskFunction


class Interruption(StrEnum):
    """Why the worker stops an attempt before it ends by itself."""

    TIMEOUT = "timeout"
    LEASE_LOST = "lease lost"
    SHUTDOWN = "shutdown"
    CANCELLED = "cancelled"


class Attempt:
    """A claimed task while this worker holds it."""

    __slots__ = (
        "begun",
        "claimed",
        "context",
        "executor",
        "function",
        "interruption",
        "lease",
        "lease_deadline",
        "runner",
        "settled",
        "started_at",
        "timeout_seconds",
        "timer",
    )

    def __init__(
        self,
        claimed: Claimed,
        function: TaskFunction[Any, Any],
        worker_id: str,
        lease_deadline: float,
        started_at: float,
    ) -> None:
        self.claimed = claimed
        self.function = function
        self.executor = function.executor
        self.lease = Lease(claimed.id, claimed.token)
        self.lease_deadline = lease_deadline
        self.started_at = started_at
        self.runner: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.interruption: Interruption | None = None
        self.begun = False
        self.settled = False
        """True once an outcome was handed over for storing; whatever the function still does comes too late."""
        # A row inserted by hand says nothing of a timeout: then the task function's own holds.
        self.timeout_seconds = claimed.timeout_seconds or function.defaults.timeout_seconds
        self.context = TaskContext(
            id=UUID(claimed.id),
            name=claimed.name,
            attempt=claimed.retry_count + 1,
            max_attempts=claimed.max_retries + 1,
            token=claimed.token,
            queue=claimed.queue,
            worker_id=worker_id,
            deadline=None if self.timeout_seconds is None else started_at + self.timeout_seconds,
            trace_context=json.loads(claimed.trace_context) if claimed.trace_context else None,
        )

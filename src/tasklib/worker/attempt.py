"""One attempt at a task, from the claim to its outcome."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tasklib.store.claim import Claimed
from tasklib.tasks.context import AttemptsCalls, TaskContext
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.function_settings import Executor

if TYPE_CHECKING:
    from tasklib.executors.outcomes import Failed, Released
    from tasklib.executors.processes import Ahead
    from tasklib.tasks.sealing import TaskSeal
    from tasklib.tracing.spans import Consumer


class Interruption(StrEnum):
    """Why the worker stops an attempt."""

    TIMEOUT = "timeout"
    LEASE_LOST = "lease lost"
    SHUTDOWN = "shutdown"
    CANCELLED = "cancelled"
    NO_SLOT = "no slot"
    """It was claimed ahead, and no slot became free in time."""


_making_a_context = threading.Lock()


class Attempt:
    """A claimed task while this worker holds it."""

    __slots__ = (
        "_context",
        "ahead",
        "begun",
        "calls",
        "claimed",
        "deadline",
        "entered",
        "executor",
        "function",
        "goes_on_record",
        "interruption",
        "lease_deadline",
        "overtaken",
        "place",
        "recorded",
        "refusal",
        "report",
        "runner",
        "seal",
        "settled",
        "span",
        "started_at",
        "timeout_seconds",
        "unread",
        "worker_id",
    )

    def __init__(
        self,
        claimed: Claimed,
        function: TaskFunction[Any, Any],
        worker_id: str,
        lease_deadline: float,
        claimed_at: float,
        place: int = 0,
        report: Callable[[Attempt, str], None] | None = None,
        calls: Callable[[Attempt], AttemptsCalls] | None = None,
    ) -> None:
        self.claimed = claimed
        self.function = function
        self.executor = function.executor
        self.worker_id = worker_id
        self.lease_deadline = lease_deadline
        self.started_at = claimed_at
        """When the function was started; before that, when the task was claimed. Monotonic."""
        # A row inserted by hand says nothing of a timeout: then the task function's own holds.
        self.timeout_seconds = claimed.timeout_seconds or function.defaults.timeout_seconds
        self.deadline: float | None = None
        """When the timeout strikes; known once the function was started."""
        self.runner: asyncio.Task[None] | None = None
        self.report = report
        self.calls = calls
        self.interruption: Interruption | None = None
        self.place = place
        """Its place in the order of the worker's claims."""
        self.begun = False
        """True once it has a slot, or was handed to a child ahead of it."""
        self.ahead: Ahead | None = None
        """Its order, while that waits in the socket of a child that runs another task."""
        self.overtaken: int
        """How many tasks from further behind in the order have begun while it was ahead."""
        self.goes_on_record = False
        """In a child: whether its start is recorded before the function is called."""
        self.recorded = False
        """In a child: True once its beginning may be on record, and the function be called."""
        self.entered = False
        """True once its asyncio task has made its first step."""
        self.seal: TaskSeal | None = None
        """Seals what it stores, if its arguments are sealed."""
        self.refusal: Failed | Released | None = None
        """Why the function is not called: its arguments can't be opened."""
        self.unread = False
        """True while arguments of it are in the payload store."""
        self.settled = False
        """True once an outcome was handed over for storing; whatever the function still does comes too late."""
        self.span: Consumer | None = None
        """Its span, where the program traces."""
        self._context: TaskContext | None = None

    @property
    def trace_context(self) -> dict[str, Any] | None:
        """The trace that the submission was part of, or whatever else it said."""
        carried = self.claimed.carried
        if carried is None or not any(name.startswith("tasklib_") for name in carried):
            return carried
        return {name: value for name, value in carried.items() if not name.startswith("tasklib_")} or None

    @property
    def schedule(self) -> str | None:
        """The schedule that it is a run of."""
        return (self.claimed.carried or {}).get("tasklib_schedule")

    @property
    def slot(self) -> datetime | None:
        """The slot of that schedule."""
        slot = (self.claimed.carried or {}).get("tasklib_slot")
        return None if slot is None else datetime.fromisoformat(slot)

    @property
    def payload_version(self) -> int | None:
        """The version of its arguments, if its function has versions."""
        return (self.claimed.carried or {}).get("tasklib_version")

    @property
    def trace_id(self) -> str | None:
        """The trace this attempt is part of."""
        return self.claimed.trace_id if self.span is None else self.span.trace_id

    @property
    def is_ending(self) -> bool:
        """Whether it was interrupted for good. A thread that was cancelled is only asked to stop: its time runs on."""
        asked = self.interruption is Interruption.CANCELLED and self.executor is Executor.THREAD
        return self.interruption is not None and not asked

    def begin(self, now: float) -> None:
        """It has a slot. Its time runs from now on, but in a child from when the child calls the function."""
        self.begun = True
        self.started_at = now
        if self.timeout_seconds is not None and self.executor is not Executor.PROCESS:
            self.deadline = now + self.timeout_seconds

    def called(self, now: float) -> None:
        """The function is called now, and its time runs."""
        self.started_at = now
        if self.timeout_seconds is not None:
            self.deadline = now + self.timeout_seconds

    def took(self, seconds: float) -> None:
        """The function has returned in its child after so long: the way back from there is no part of it."""
        self.started_at = time.monotonic() - seconds

    def interrupt(self, why: Interruption) -> None:
        """Store why the attempt must stop, and set `current_task().cancelled`."""
        self.interruption = why
        if self._context is not None:
            self._context.cancel()

    def context(self) -> TaskContext:
        """The result of `current_task()`, made on demand. May be called from any thread."""
        with _making_a_context:
            if self._context is None:
                self._context = self._new_context()
        # Checked after the context is visible: an interruption finds the context, or is found here.
        if self.interruption is not None:
            self._context.cancel()
        return self._context

    def _reporting(self) -> Callable[[str], None]:
        report, seal = self.report, self.seal
        assert report is not None
        return partial(report, self) if seal is None else lambda text: report(self, seal.json("progress", text))

    def _new_context(self) -> TaskContext:
        claimed = self.claimed
        calls = self.calls(self) if self.calls else None
        return TaskContext(
            id=UUID(claimed.id),
            name=claimed.name,
            attempt=claimed.attempt,
            max_attempts=claimed.max_retries + claimed.crash_count + 1,
            token=claimed.token,
            queue=claimed.queue,
            worker_id=self.worker_id,
            deadline=self.deadline,
            trace_context=self.trace_context,
            trace_id=self.trace_id,
            schedule=self.schedule,
            slot=self.slot,
            payload_version=self.payload_version,
            priority=claimed.priority,
            _arguments=claimed.kwargs,
            _report=self._reporting() if self.report else None,
            _calls=calls.of_database if calls else None,
            _limits=calls,
        )

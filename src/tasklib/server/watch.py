"""Waiting for tasks to change: one statement asks for all who wait, however many they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from tasklib.db.query import Query
from tasklib.store import lookup
from tasklib.store.lookup import WatchedState

GONE = WatchedState("gone", "gone")
"""The event for a task that was deleted."""

_SHORTEST_PAUSE, _FIRST_PAUSE, _PAUSE_GROWTH, _LONGEST_PAUSE = 0.005, 0.02, 1.5, 0.25

_Run = Callable[[Query[dict[UUID, WatchedState]]], Awaitable[dict[UUID, WatchedState]]]


@dataclass(eq=False, slots=True)
class _Waiting:
    task_id: UUID
    seen: str | None
    answer: asyncio.Future[WatchedState | None]


class TaskWatch:
    """The end of a task sends no notification, so tasks are polled: soon after a new request, then less often."""

    def __init__(self, run: _Run, is_stopped: Callable[[], bool]) -> None:
        self._run = run
        self._is_stopped = is_stopped
        self._waiting: set[_Waiting] = set()
        self._looking: asyncio.Task[None] | None = None
        self._prompt = asyncio.Event()

    async def change(self, task_id: UUID, seen: str | None, seconds: float) -> WatchedState | None:
        """Wait until a task's version is another than the one seen; None if it isn't within so many seconds.

        Without a version seen it says at once how the task stands.
        """
        if self._is_stopped():
            return None
        waiting = _Waiting(task_id, seen, asyncio.get_running_loop().create_future())
        self._waiting.add(waiting)
        self.look_soon()
        try:
            async with asyncio.timeout(seconds):
                return await waiting.answer
        except TimeoutError:
            return None
        finally:
            self._waiting.discard(waiting)

    def look_soon(self) -> None:
        """Something may have changed, or a new request waits."""
        self._prompt.set()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        pause = _FIRST_PAUSE
        while self._waiting and not self._is_stopped():
            self._prompt.clear()
            asked = list(self._waiting)
            try:
                found = await self._run(lookup.watched({w.task_id for w in asked}))
            except Exception as e:
                self._fail(e)
                return
            for waiting in asked:
                standing = found.get(waiting.task_id, GONE)
                if standing.version != waiting.seen and not waiting.answer.done():
                    waiting.answer.set_result(standing)
            pause = await self._rest(pause)
        for waiting in self._waiting:
            if not waiting.answer.done():
                waiting.answer.set_result(None)

    async def _rest(self, pause: float) -> float:
        """Pause, for a shorter while if there is reason to; returns how long to pause next time."""
        await asyncio.sleep(_SHORTEST_PAUSE)  # those who come together are asked for together
        try:
            async with asyncio.timeout(pause):
                await self._prompt.wait()
            return _FIRST_PAUSE
        except TimeoutError:
            return min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)

    def _fail(self, error: Exception) -> None:
        """Stop polling, and end the requests that came meanwhile."""
        for waiting in self._waiting:
            if not waiting.answer.done():
                waiting.answer.set_exception(error)

"""Running a worker inside a test and waiting for what it says: events instead of sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tasklib import Config, Worker
from tasklib.backends.postgres.backend import PostgresBackend
from tasklib.events import Event, TaskEnded, WorkerStarted
from tasklib.worker.attempt import Interruption

E = TypeVar("E")
PATIENCE = 120.0


class Watched:
    """A worker and everything it has said so far."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.events: list[Event] = []
        self._news = asyncio.Event()
        self.finished: asyncio.Task[None] | None = None
        worker.events.subscribe(self._hear)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    def all(self, kind: type[E]) -> list[E]:
        return [e for e in self.events if isinstance(e, kind)]

    async def until(self, kind: type[E], matching: Callable[[Any], bool] = lambda e: True, count: int = 1) -> E:
        """Wait until `count` such events have come; returns the last of them."""
        async with asyncio.timeout(PATIENCE):
            while len(found := [e for e in self.all(kind) if matching(e)]) < count:
                self._news.clear()
                if self.finished is not None and self.finished.done():
                    self.finished.result()
                    raise AssertionError(f"the worker ended before {kind.__name__}; it said {self.events}")
                await self._news.wait()
        return found[count - 1]

    def stop_attempts(self) -> None:
        """Interrupt whatever runs, as a second stop does, without waiting for the drain."""
        asyncio.get_running_loop().call_soon(self._interrupt_all)

    def _interrupt_all(self) -> None:
        for attempt in list(self.worker._runner.running):
            self.worker._runner.interrupt(attempt, Interruption.SHUTDOWN)

    async def asleep(self) -> None:
        """Wait until the worker relies on being notified."""
        worker = self.worker
        assert isinstance(worker._backend, PostgresBackend)
        await worker._backend.notifier.listening.wait()
        async with asyncio.timeout(PATIENCE):
            # Nobody tells that it has gone to sleep.
            sleep, wakeup = worker._claimer.claims.sleep, worker._backend.wakeup
            while not (sleep.relies_on_notification and wakeup._sleeper):  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def ended(self, task_id: object, state: str | None = None) -> TaskEnded:
        """Wait until an attempt of this task is over (and the task in this state)."""
        return await self.until(TaskEnded, lambda e: e.id == str(task_id) and state in (None, e.state))


@asynccontextmanager
async def working(config: Config, **options: Any) -> AsyncIterator[Watched]:
    """A worker that runs during the block and is stopped at its end."""
    worker = Worker(config, **options)
    watched = Watched(worker)
    watched.finished = asyncio.create_task(worker.run())
    try:
        await watched.until(WorkerStarted)
        yield watched
    finally:
        if not watched.finished.done():
            worker.stop()
            worker.stop()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(watched.finished, return_exceptions=True)
    watched.finished.result()


async def burst(config: Config, **options: Any) -> Watched:
    """Run a worker until nothing is due."""
    watched = Watched(Worker(config, burst=True, **options))
    async with asyncio.timeout(PATIENCE):
        await watched.worker.run()
    return watched

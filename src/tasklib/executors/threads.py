"""Threads for synchronous task functions."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
_Job: TypeAlias = "tuple[asyncio.Future[Any], contextvars.Context, Callable[[], Any]] | None"


class ThreadExecutor:
    """Runs functions in daemon threads, started as they are needed.

    Daemon threads, because a thread can't be killed: one that never returns must not keep the process from ending.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run the function in a thread, in a copy of this context. Call from the loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, args=(loop,), name=f"tasklib-task-{self._threads}", daemon=True).start()
        self._jobs.put((future, contextvars.copy_context(), function))
        return future

    def close(self) -> None:
        """Let idle threads end; busy ones end after what they do."""
        for _ in range(self._threads):
            self._jobs.put(None)
        self._threads = 0

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (job := self._jobs.get()) is not None:
            future, context, function = job
            try:
                value, error = context.run(function), None
            except BaseException as e:
                value, error = None, e
            # The loop may have closed while the thread was busy: then nobody waits for the answer.
            try:
                loop.call_soon_threadsafe(self._deliver, future, value, error)
            except RuntimeError:
                return

    def _deliver(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._busy -= 1
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

"""Threads for synchronous task functions."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from tasklib.tasks.surroundings import thread_ends

T = TypeVar("T")
_Job: TypeAlias = "tuple[Callable[[], Any], Callable[[Any], None]] | None"
_LOOK_AGAIN_SECONDS = 0.001
_SOON = 4
"""Jobs wait for more threads only if what waits will be taken within this many looks."""


class ThreadExecutor:
    """Runs jobs in daemon threads, started as they are needed.

    Daemon threads, because a thread can't be killed: one that never returns must not keep the process from ending.
    Threads share one interpreter lock, so for short jobs a single thread is fastest; more are started, twice as many
    each time, while jobs wait and the threads there are don't get on with them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._done: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._announced = False
        self._threads = 0
        self._ended = 0
        self._growing: asyncio.TimerHandle | None = None

    def submit(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run the job in a thread, in a context of its own, then `done` with what it returned on the loop."""
        self._jobs.put((job, done))
        if not self._threads:
            self._start(1)
        if self._growing is None and self._threads < self._most:
            self._ended = 0
            self._growing = self._loop.call_later(_LOOK_AGAIN_SECONDS, self._grow)

    def close(self) -> None:
        """Let idle threads end; busy ones end after what they do."""
        if self._growing is not None:
            self._growing.cancel()
        for _ in range(self._threads):
            self._jobs.put(None)
        self._threads = 0

    def _grow(self) -> None:
        """More threads, if jobs wait and would go on waiting."""
        self._growing = None
        waiting, ended, self._ended = self._jobs.qsize(), self._ended, 0
        if not waiting:
            return
        if waiting > _SOON * ended:
            self._start(min(max(self._threads, 1), self._most - self._threads, waiting))
        if self._threads < self._most:
            self._growing = self._loop.call_later(_LOOK_AGAIN_SECONDS, self._grow)

    def _start(self, count: int) -> None:
        for _ in range(count):
            thread = threading.Thread(target=self._work, name=f"tasklib-task-{self._threads + 1}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return  # the system gives no more threads just now; `_grow` asks again
            self._threads += 1

    def _work(self) -> None:
        try:
            self._run_jobs()
        finally:
            for end in thread_ends:
                end()

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            run, done = job
            self._done.append((done, self._context.copy().run(run)))
            if not self._announced:
                self._announced = True
                # The loop may have closed while the thread was busy: then the result is not needed.
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:
                    return
            del job, run, done  # an idle thread keeps nothing alive

    def _deliver(self) -> None:
        # Before looking: what is added from now on is announced anew.
        self._announced = False
        while self._done:
            done, value = self._done.popleft()
            self._ended += 1
            done(value)

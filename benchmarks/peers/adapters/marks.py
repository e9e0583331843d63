"""What task bodies leave behind for the driver: counts and moments, in files it maps, at no cost to the database.

    hit()          a task ran: counted in `count.<pid>`
    started(7)     ping 7 began: the moment goes into slot 7 of `latency`

Moments are CLOCK_MONOTONIC, which all processes of a machine share. This file is imported by every Python adapter and
by the driver, so it needs nothing but the standard library.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from pathlib import Path

COUNT = struct.Struct("<Qdd")
"""How many tasks this process ran; when the first and the last of them began."""

LATENCY = struct.Struct("<ddd")
"""One ping: submission called, submission returned, body began. A zero has not happened."""

LATENCY_SLOTS = 4096

WARM_UPS = 10
"""A producer submits so many before it is timed: systems connect and prepare statements at different moments."""


def mapped(path: Path, size: int) -> mmap.mmap:
    """A file of this size, shared between processes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        if os.fstat(descriptor).st_size < size:
            os.ftruncate(descriptor, size)
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


class Marks:
    """The marks of one process. A forked child begins its own count."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._latency: mmap.mmap | None = None
        self._begin_count()
        os.register_at_fork(after_in_child=self._begin_count)

    def _begin_count(self) -> None:
        self._lock = threading.Lock()
        self._counter: mmap.mmap | None = None
        self._count = 0
        self._first = 0.0

    def hit(self) -> None:
        """Count a task; called by the body of every task, in whatever thread."""
        with self._lock:
            now = time.monotonic()
            if self._counter is None:
                self._counter = mapped(self._directory / f"count.{os.getpid()}", COUNT.size)
                self._first = now
            self._count += 1
            COUNT.pack_into(self._counter, 0, self._count, self._first, now)

    def started(self, number: int) -> None:
        """The body of ping `number` has begun."""
        struct.pack_into("<d", self.latency, LATENCY.size * number + 16, time.monotonic())
        self.hit()

    def submitted(self, number: int, called: float, returned: float) -> None:
        """The submission of ping `number` took from one moment to the other."""
        struct.pack_into("<dd", self.latency, LATENCY.size * number, called, returned)

    def has_started(self, number: int) -> bool:
        return bool(LATENCY.unpack_from(self.latency, LATENCY.size * number)[2])

    @property
    def latency(self) -> mmap.mmap:
        if self._latency is None:
            self._latency = mapped(self._directory / "latency", LATENCY.size * LATENCY_SLOTS)
        return self._latency

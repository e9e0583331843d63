"""What all Python adapters share: their environment, the bodies of the tasks, and the commands the driver calls.

    python some_adapter.py setup                      create the system's tables
    python some_adapter.py submit KIND COUNT          one by one, after some to warm up, READY printed and GO read
    python some_adapter.py submit-many KIND COUNT     by the system's quickest documented way
    python some_adapter.py ping COUNT GAP_SECONDS     one ping at a time, with pauses
    python some_adapter.py work                       run tasks until killed

KIND is noop (async), sync_noop, ping (async, takes its number) or nap (fills a slot until the worker is killed).
The answer is a line `RESULT {...}` on standard output. Node's adapters speak the same protocol: see adapter.js.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from marks import WARM_UPS, Marks

DATABASE_URL = os.environ.get("BENCH_DATABASE_URL", "")
REDIS_URL = os.environ.get("BENCH_REDIS_URL", "")
LAB = Path(os.environ.get("BENCH_LAB", "."))
OPTIONS: dict[str, Any] = json.loads(os.environ.get("BENCH_OPTIONS", "{}"))
NAP_SECONDS = 3600.0
FIRST_PING_SECONDS = 30.0

_marks = Marks(Path(os.environ.get("BENCH_RUN_DIR", ".")))
hit = _marks.hit
started = _marks.started


async def nap_async() -> None:
    """The body of a task that keeps its slot."""
    hit()
    await asyncio.sleep(NAP_SECONDS)


def nap_sync() -> None:
    """The same in a thread or process."""
    hit()
    time.sleep(NAP_SECONDS)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run on uvloop where it is installed: every asyncio system gets it."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def chunks(count: int, size: int) -> Iterator[int]:
    """The sizes of the batches that `count` makes."""
    for begun in range(0, count, size):
        yield min(size, count - begun)


class AsyncAdapter:
    """A system with an asynchronous client. Subclasses fill in what differs."""

    async def setup(self) -> None:
        """Create tables and queues."""

    async def open(self) -> None:
        """Connect the client; not timed."""

    async def close(self) -> None:
        """Let the connections go."""

    async def submit(self, kind: str, number: int) -> None:
        """Submit one task."""
        raise NotImplementedError

    async def submit_many(self, kind: str, count: int) -> None:
        """Submit many tasks."""
        raise NotImplementedError

    def work(self) -> None:
        """Run tasks until killed."""
        raise NotImplementedError

    def perform(self, command: str, arguments: list[str]) -> None:
        if command == "work":
            self.work()
        elif command == "setup":
            run(self.setup())
        else:
            run(self._opened(command, arguments))

    async def _opened(self, command: str, arguments: list[str]) -> None:
        await self.open()
        try:
            if command == "ping":
                return await self._ping(int(arguments[0]), float(arguments[1]))
            kind, count = arguments[0], int(arguments[1])
            for number in range(WARM_UPS if command == "submit" else 0):
                await self.submit(kind, number)
            _wait_for_go()
            begun = time.monotonic()
            if command == "submit-many":
                await self.submit_many(kind, count)
            else:
                for number in range(count):
                    await self.submit(kind, number)
            _report(begun=begun, ended=time.monotonic())
        finally:
            await self.close()

    async def _ping(self, count: int, gap: float) -> None:
        for number in range(count):
            called = time.monotonic()
            await self.submit("ping", number)
            _marks.submitted(number, called, time.monotonic())
            await asyncio.sleep(gap)
            while number == 0 and not _first_ping_ran(called):  # noqa: ASYNC110  # another process sets it
                await asyncio.sleep(gap)


class SyncAdapter:
    """A system whose client blocks."""

    def setup(self) -> None:
        """Create tables and queues."""

    def open(self) -> None:
        """Connect the client; not timed."""

    def close(self) -> None:
        """Let the connections go."""

    def submit(self, kind: str, number: int) -> None:
        """Submit one task."""
        raise NotImplementedError

    def submit_many(self, kind: str, count: int) -> None:
        """Submit many tasks; unless there is a better way, one by one."""
        for number in range(count):
            self.submit(kind, number)

    def work(self) -> None:
        """Run tasks until killed."""
        raise NotImplementedError

    def perform(self, command: str, arguments: list[str]) -> None:
        if command == "work":
            self.work()
        elif command == "setup":
            self.setup()
        else:
            self._opened(command, arguments)

    def _opened(self, command: str, arguments: list[str]) -> None:
        self.open()
        try:
            if command == "ping":
                return self._ping(int(arguments[0]), float(arguments[1]))
            kind, count = arguments[0], int(arguments[1])
            for number in range(WARM_UPS if command == "submit" else 0):
                self.submit(kind, number)
            _wait_for_go()
            begun = time.monotonic()
            if command == "submit-many":
                self.submit_many(kind, count)
            else:
                for number in range(count):
                    self.submit(kind, number)
            _report(begun=begun, ended=time.monotonic())
        finally:
            self.close()

    def _ping(self, count: int, gap: float) -> None:
        for number in range(count):
            called = time.monotonic()
            self.submit("ping", number)
            _marks.submitted(number, called, time.monotonic())
            time.sleep(gap)
            while number == 0 and not _first_ping_ran(called):
                time.sleep(gap)


def main(adapter: AsyncAdapter | SyncAdapter) -> None:
    """Do what the command line says."""
    adapter.perform(sys.argv[1], sys.argv[2:])


def become(*command: str) -> None:
    """Turn this process into the system's own command, run by this interpreter."""
    os.execv(sys.executable, [sys.executable, "-m", *command])


def _wait_for_go() -> None:
    """Several producers begin together: each says that it is connected, and the driver starts all at once."""
    print("READY", flush=True)
    sys.stdin.readline()


def _first_ping_ran(called: float) -> bool:
    """The first ping may find the worker still starting; the others are about an idle one."""
    if time.monotonic() - called > FIRST_PING_SECONDS:
        raise SystemExit("the first ping was not picked up: is the worker running?")
    return _marks.has_started(0)


def _report(**values: float) -> None:
    print("RESULT " + json.dumps(values), flush=True)

"""A small engine for discrete events: processes are generators, and time is a number.

def customer(sim, desk):
    yield 2.0                        # two seconds pass
    yield from desk.use(0.5)         # wait for the desk, and hold it for half a second
    yield signal                     # until somebody calls signal.ring()
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator
from itertools import count
from typing import TypeAlias

Process: TypeAlias = "Generator[float | Signal, bool, None]"
"""It is sent whether the signal rang; False after its time ran out."""


class Simulation:
    """The time, and what is to happen in it. Of events at the same moment the one that was set first comes first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._order), call))

    def start(self, process: Process) -> None:
        """Run a process from now on."""
        self._go_on(process, None)

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._due and self._due[0][0] <= until:
            self.now, _, call = heapq.heappop(self._due)
            call()
        self.now = until

    def _go_on(self, process: Process, sent: bool | None) -> None:
        try:
            wanted = next(process) if sent is None else process.send(sent)
        except StopIteration:
            return
        if isinstance(wanted, Signal):
            wanted.wait(lambda rang: self._go_on(process, rang))
        else:
            self.after(wanted, lambda: self._go_on(process, True))


class Signal:
    """Processes wait for it until it rings, or for so many seconds."""

    def __init__(self, sim: Simulation, seconds: float | None = None) -> None:
        self._sim = sim
        self._seconds = seconds
        self._waiting: list[Callable[[bool], None]] = []

    def wait(self, go_on: Callable[[bool], None]) -> None:
        self._waiting.append(go_on)
        if self._seconds is not None:
            self._sim.after(self._seconds, lambda: self._give_up(go_on))

    def ring(self) -> None:
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            self._sim.after(0.0, lambda go_on=go_on: go_on(True))  # type: ignore[misc]

    def _give_up(self, go_on: Callable[[bool], None]) -> None:
        if go_on in self._waiting:
            self._waiting.remove(go_on)
            go_on(False)


class Cores:
    """So many of one thing, each used by one process at a time, in the order in which they come."""

    def __init__(self, sim: Simulation, number: int) -> None:
        self._sim = sim
        self.number = number
        self.busy_seconds = 0.0
        """Of all together, as far as the uses have ended."""
        self._free = number
        self._queue: deque[Signal] = deque()

    def use(self, seconds: float) -> Process:
        yield from self.take()
        yield seconds
        self.give_back(seconds)

    def take(self) -> Process:
        if self._free:
            self._free -= 1
        else:
            turn = Signal(self._sim)
            self._queue.append(turn)
            yield turn

    def give_back(self, used: float = 0.0) -> None:
        self.busy_seconds += used
        if self._queue:
            self._queue.popleft().ring()  # it is the next one's at once
        else:
            self._free += 1

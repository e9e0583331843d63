"""How long low tasks wait behind a constant load of high ones, in virtual time: hours of queueing in seconds.

    python benchmarks/fairness.py

Arrivals are random, each task takes a slot for one second, and whenever a slot is free the task is started that the
claim would take: the lane head of the highest effective priority, and among equals the one due earliest.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tasklib.formatting import duration
from tasklib.priorities import raised

LOW, MEDIUM, HIGH = -10, 0, 100
SLOTS = 10
SERVICE_SECONDS = 1.0
_BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Load:
    """What arrives, as fractions of the capacity, and for how long."""

    title: str
    fractions: Mapping[int, float]
    hours: float = 3.0
    medium_after: float = 600.0
    high_after: float = 1200.0

    def promised(self, priority: int) -> float:
        """After this long, nothing that came later goes first."""
        return self.high_after + (self.medium_after if priority < MEDIUM else 0.0)


@dataclass
class Lane:
    """Tasks of one priority, by the moment they became due."""

    due: list[float] = field(default_factory=list)
    started: int = 0
    promoted: int = 0
    """How many have waited for as long as was promised, or were started before that."""

    def waiting_before(self, moment: float) -> int:
        return max(0, bisect_left(self.due, moment) - self.started)


@dataclass
class Waits:
    """What became of the tasks of one priority."""

    longest: float = 0.0
    total: float = 0.0
    count: int = 0
    beyond_bound: int = 0
    """Tasks that waited longer than promised and than those ahead of them took: there must be none."""


class Simulation:
    """A queue and its slots."""

    def __init__(self, load: Load, seed: int = 1) -> None:
        self.load = load
        self.waits = {priority: Waits() for priority in load.fractions}
        self._lanes = {priority: Lane() for priority in load.fractions}
        self._bounds: dict[tuple[int, int], float] = {}
        self._chance = random.Random(seed)

    def run(self) -> Mapping[int, Waits]:
        """Let everything arrive and everything be done."""
        busy: list[float] = []
        arrivals = heapq.merge(*(self._arrivals(p, f) for p, f in self.load.fractions.items()))
        arrival = next(arrivals, None)
        while arrival is not None or busy:
            if arrival is not None and (not busy or arrival[0] <= busy[0]):
                now, priority = arrival
                self._lanes[priority].due.append(now)
                arrival = next(arrivals, None)
            else:
                now = heapq.heappop(busy)
            self._note_promotions(now)
            while len(busy) < SLOTS and self._start_best(now):
                heapq.heappush(busy, now + SERVICE_SECONDS)
        return self.waits

    def _arrivals(self, priority: int, fraction: float) -> Iterator[tuple[float, int]]:
        now, rate = 0.0, fraction * SLOTS / SERVICE_SECONDS
        while (now := now + self._chance.expovariate(rate)) < self.load.hours * 3600:
            yield now, priority

    def _note_promotions(self, now: float) -> None:
        """When a task counts as high, only what was due earlier may go before it: that much longer it may take."""
        for priority, lane in self._lanes.items():
            lane.promoted = max(lane.promoted, lane.started)
            while lane.promoted < len(lane.due):
                promotion = lane.due[lane.promoted] + self.load.promised(priority)
                if priority == HIGH or promotion > now:
                    break
                ahead = sum(other.waiting_before(lane.due[lane.promoted]) for other in self._lanes.values())
                # Every slot is busy for at most one more second, then each second takes as many as there are slots.
                seconds = SERVICE_SECONDS * (1 + ahead // SLOTS)
                self._bounds[priority, lane.promoted] = promotion + seconds
                lane.promoted += 1

    def _start_best(self, now: float) -> bool:
        heads = [(p, lane.due[lane.started]) for p, lane in self._lanes.items() if lane.started < len(lane.due)]
        if not heads:
            return False
        priority, due = min(heads, key=lambda head: (-self._level(head[0], head[1], now), head[1]))
        lane, waits = self._lanes[priority], self.waits[priority]
        bound = self._bounds.pop((priority, lane.started), None)
        lane.started += 1
        waited = now - due
        waits.count += 1
        waits.total += waited
        waits.longest = max(waits.longest, waited)
        waits.beyond_bound += bound is not None and now > bound + 1e-6
        return True

    def _level(self, priority: int, due: float, now: float) -> int:
        since, moment = (_BEGINNING + timedelta(seconds=s) for s in (due, now))
        return raised(priority, since, moment, self.load.medium_after, self.load.high_after)


LOADS = (
    Load("high 90 %, medium 6 %, low 3 % of the capacity", {HIGH: 0.90, MEDIUM: 0.06, LOW: 0.03}),
    Load("high 90 %, medium 10 %, low 5 %: more than fits", {HIGH: 0.90, MEDIUM: 0.10, LOW: 0.05}),
)
NEVER = 1e9
WITHOUT_AGING = Load("the same without aging", LOADS[1].fractions, medium_after=NEVER, high_after=NEVER)


def main() -> None:
    for load in (*LOADS, WITHOUT_AGING):
        print(f"{load.title}, for {load.hours:g} hours")
        for priority, waits in sorted(Simulation(load).run().items()):
            level = {LOW: "low", MEDIUM: "medium", HIGH: "high"}[priority]
            print(
                f"  {level:6}  {waits.count:7,} tasks  mean wait {duration(waits.total / waits.count):>12}"
                f"  longest {waits.longest:8,.1f} s  beyond the bound: {waits.beyond_bound}"
            )


if __name__ == "__main__":
    main()

"""One round: each chosen workload is measured once. What they have in common, and what they return."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from tasklib.bench.plan import Plan
from tasklib.bench.schema import BenchSchema

T = TypeVar("T")
_SLICES = 4
Side: TypeAlias = Callable[[int], Callable[[], None]]
"""Gets the size of a slice, prepares it, and returns the part that is timed."""


@dataclass(frozen=True)
class Sample:
    """What measuring a workload once gave. None is a number that can't be known here."""

    value: float | None
    """In the workload's unit."""
    against: float | None = None
    """What it is compared with, in the same unit, measured in the same round."""
    details: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        return self.value / self.against if self.value is not None and self.against else None


@dataclass
class Round:
    """The schema, the plan, and what was measured in this round already."""

    schema: BenchSchema
    plan: Plan
    flipped: bool = False
    """In every second round sides change places, so that no side always comes first."""
    _done: dict[str, Any] = field(default_factory=dict)

    def once(self, what: str, measure: Callable[[], T]) -> T:
        """Measure it, or return what was measured when another workload of this round needed it."""
        if what not in self._done:
            self._done[what] = measure()
        value: T = self._done[what]
        return value

    def in_turn(self, first: Callable[[], T], second: Callable[[], T]) -> tuple[T, T]:
        """Both, the second one first in a flipped round."""
        if self.flipped:
            later, sooner = second(), first()
            return sooner, later
        return first(), second()

    def rates(self, size: int, first: Side, second: Side) -> tuple[float, float]:
        """How many tasks per second each side does, given about `size` of them in slices by turns."""
        slice_size = max(1, size // _SLICES)
        times = [
            self.in_turn(lambda: _seconds(first(slice_size)), lambda: _seconds(second(slice_size)))
            for _ in range(_SLICES)
        ]
        return _SLICES * slice_size / sum(t for t, _ in times), _SLICES * slice_size / sum(t for _, t in times)


def _seconds(timed: Callable[[], None]) -> float:
    began = time.perf_counter()
    timed()
    return time.perf_counter() - began

"""One round: each chosen workload is measured once. What they have in common, and what they return."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tasklib.bench.ground import Ground
from tasklib.bench.plan import Plan

T = TypeVar("T")
_SLICES = 4


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
    """The ground, the plan, and what was measured in this round already."""

    ground: Ground
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

    def seconds_of_each(self, size: int, *sides: Callable[[int], Callable[[], None]]) -> list[float]:
        """How long each side takes for `size` tasks, in slices by turns.

        A side gets the size of a slice, prepares it, and returns the part that is timed.
        """
        taken = [0.0 for _ in sides]
        order = list(enumerate(sides))
        for slice_ in range(_SLICES):
            for i, side in reversed(order) if self.flipped != bool(slice_ % 2) else order:
                timed = side(max(1, size // _SLICES))
                began = time.perf_counter()
                timed()
                taken[i] += time.perf_counter() - began
        return taken

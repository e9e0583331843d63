"""How often something may happen: a bucket for each key that holds a while's worth and fills steadily."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

_MOST_KEYS = 10_000


class RateLimit:
    """At most `burst` at once, and `per_second` in the long run, for each key separately."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = max(1.0, burst)
        self._clock = clock
        self._levels: dict[Hashable, tuple[float, float]] = {}

    def take(self, key: Hashable = None) -> float | None:
        """Once more; returns None if that is allowed, else the seconds until it will be."""
        now = self._clock()
        level, then = self._levels.get(key, (self._burst, now))
        level = min(self._burst, level + (now - then) * self._per_second)
        if level < 1:
            return (1 - level) / self._per_second
        if len(self._levels) >= _MOST_KEYS and key not in self._levels:
            self._forget_full(now)
        self._levels[key] = (level - 1, now)
        return None

    def _forget_full(self, now: float) -> None:
        """Those whose bucket is full again are as if they had never come."""
        fills = self._burst / self._per_second
        self._levels = {key: (level, then) for key, (level, then) in self._levels.items() if now - then < fills}

"""How many tasks a worker may claim ahead of its free slots.

Short tasks are over before the next claim could bring more, so a worker claims some ahead: only of functions that were
short lately, and only as many as it gets through in a moment. What was claimed ahead and has no slot in sight after
much longer than that is given back, and nothing more is claimed ahead until there is new evidence.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

_MOMENT_SECONDS = 0.05
PATIENCE_SECONDS = 0.25
"""How long a task claimed ahead waits before it is asked whether its turn is in sight."""
_SHORT_SECONDS = 0.005
_MEMORY = 16
"""How long a function takes is an average over about this many tasks."""
_WINDOW_SECONDS = 0.02
_LATELY_SECONDS = 1.0


class Prefetch:
    """Remembers how long functions take, and how many tasks end in a moment."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._average: dict[str, float] = {}
        self._per_second = 0.0
        self._ended = 0
        self._since = time.monotonic()

    def ended(self, name: str, seconds: float) -> None:
        """A task of this name took so long."""
        self._ended += 1
        average = self._average.get(name, 2 * _SHORT_SECONDS)
        self._average[name] = average + (seconds - average) / _MEMORY

    def are_short(self, names: Iterable[str]) -> bool:
        return all(self._average.get(name, _SHORT_SECONDS) < _SHORT_SECONDS for name in names)

    @property
    def count(self) -> int:
        """How many tasks of short functions to hold beyond the slots."""
        elapsed = (now := time.monotonic()) - self._since
        if elapsed >= _WINDOW_SECONDS:
            per_second = self._ended / elapsed
            # After a pause, what was before it is no evidence.
            self._per_second = per_second if elapsed > _LATELY_SECONDS else (self._per_second + per_second) / 2
            self._ended, self._since = 0, now
        return min(self._most, int(self._per_second * _MOMENT_SECONDS))

    def was_too_much(self) -> None:
        """Some of it had to be given back."""
        self._per_second = 0.0
        self._average.clear()

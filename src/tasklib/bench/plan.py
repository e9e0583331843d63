"""How much is measured, how often, and with how many slots."""

from __future__ import annotations

from dataclasses import dataclass

CONCURRENCY = 500
"""Slots of a worker that runs async tasks. Short tasks are claimed and settled in batches of up to this size."""

THREADS = 50
"""Slots of a worker that runs sync functions, each in a thread."""

DEFAULT_SCALE, DEFAULT_REPEATS = 0.2, 3
QUICK_SCALE, QUICK_REPEATS = 0.02, 1
FULL_SCALE = 1.0

FULL_SIZES = {
    "W1": 10_000,
    "W2": 100_000,
    "W3": 100_000,
    "W4": 100_000,
    "W5": 500,
    "W6": 50_000,
    "W7": 100_000,
    "W8": 200_000,
    "W9": 100_000,
    "W10": 20_000,
    "W11": 100_000,
    "W12": 500,
}
"""Tasks per repeat of each workload, at scale 1."""

FULL_FINISHED, FULL_FUTURE = 1_000_000, 500_000
"""The rows that lie beside the tasks of W7, at scale 1."""

_LEAST = 16


@dataclass(frozen=True)
class Plan:
    """What the person at the command line asked for."""

    scale: float = DEFAULT_SCALE
    repeats: int = DEFAULT_REPEATS
    concurrency: int = CONCURRENCY

    def size(self, workload: str) -> int:
        """The tasks of this workload, per repeat."""
        return self.scaled(FULL_SIZES[workload])

    def scaled(self, full: int) -> int:
        return max(_LEAST, round(full * self.scale))

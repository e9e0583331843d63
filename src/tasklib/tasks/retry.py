"""When a failed attempt is tried again: the policy, and two exceptions by which a task says so itself."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import timedelta

from tasklib.config import Config
from tasklib.errors import InvalidOption
from tasklib.tasks.options import MAX_DELAY_SECONDS


class Retry(Exception):
    """Raise it in a task to end this attempt and try again: `raise Retry(in_=60)`. It uses one retry."""

    def __init__(self, in_: float | timedelta | None = None, reason: str = "the task asked for a retry") -> None:
        super().__init__(reason)
        seconds = in_.total_seconds() if isinstance(in_, timedelta) else in_
        if seconds is not None and (
            isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf
        ):
            raise InvalidOption(f"Retry(in_=...) must be 0 seconds or more, not {in_!r}.")
        self.seconds = None if seconds is None else min(seconds, MAX_DELAY_SECONDS)


class Reject(Exception):
    """Raise it in a task to give up at once: `raise Reject("card was stolen")`. It goes to the dead letter queue."""

    def __init__(self, reason: str = "the task was rejected") -> None:
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The wait before each retry: base * multiplier ** retries so far, spread by jitter, at most `max_seconds`.

    RetryPolicy(base_seconds=1, multiplier=3)      # 1, 3, 9, 27 s ...
    """

    base_seconds: float = 5.0
    multiplier: float = 2.0
    max_seconds: float = 3600.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        # Comparisons with NaN are false, so it fails them all.
        if not (
            0 <= self.base_seconds < math.inf
            and 1 <= self.multiplier < math.inf
            and 0 <= self.max_seconds <= MAX_DELAY_SECONDS
            and 0 <= self.jitter <= 1
        ):
            raise InvalidOption(
                "RetryPolicy needs base_seconds of at least 0, a multiplier of at least 1, max_seconds from 0 to "
                f"{MAX_DELAY_SECONDS:,} and a jitter from 0 to 1, not {self}."
            )

    def delay(self, retry_count: int, chance: float | None = None) -> float:
        """Seconds to wait after an attempt with `retry_count` retries behind it. `chance` (0 to 1) fixes the jitter."""
        if self.base_seconds == 0:
            return 0.0
        try:
            seconds = self.base_seconds * float(self.multiplier) ** retry_count
        except OverflowError:
            seconds = self.max_seconds
        spread = 1 + self.jitter * (2 * (random.random() if chance is None else chance) - 1)
        return min(min(seconds, self.max_seconds) * spread, self.max_seconds)

    @classmethod
    def of(cls, config: Config) -> RetryPolicy:
        return cls(
            config.base_retry_delay_seconds,
            config.retry_backoff_multiplier,
            config.max_retry_delay_seconds,
            config.retry_jitter,
        )


# Tracebacks name them as users know them.
Retry.__module__ = Reject.__module__ = "tasklib"

"""When an attempt is tried again: the policy, and three exceptions by which a task says so itself."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from datetime import timedelta

from tasklib.config import Config
from tasklib.errors import InvalidOption
from tasklib.tasks.options import MAX_DELAY_SECONDS

_CONTROL = re.compile("[\x00-\x1f]")


class Retry(Exception):
    """Raise it in a task to end this attempt and try again: `raise Retry(in_=60)`. It uses one retry."""

    def __init__(self, in_: float | timedelta | None = None, reason: str = "the task asked for a retry") -> None:
        super().__init__(reason)
        self.seconds = None if in_ is None else _seconds("Retry(in_=...)", in_)


class Throttled(Exception):
    """Raise it in a task that another system refused for now: `raise Throttled(retry_after=30)`. It uses no retry.

    No task behind the same limits begins before that, over the whole fleet: those that the function is declared with,
    or the one `limit` that is named here (`key`: of that limit). Without any, only this task waits.
    """

    def __init__(
        self,
        retry_after: float | timedelta,
        limit: str | None = None,
        key: str | None = None,
        reason: str = "another system refused it for now",
    ) -> None:
        super().__init__(reason)
        self.seconds = _seconds("Throttled(retry_after=...)", retry_after)
        for name, value in (("limit", limit), ("key", key)):
            if value is not None and (not isinstance(value, str) or not value or _CONTROL.search(value)):
                raise InvalidOption(f"Throttled({name}=...) must be text without control characters, not {value!r}.")
        if key is not None and limit is None:
            raise InvalidOption("Throttled(key=...) belongs to a limit: Throttled(30, limit='stripe', key='acme').")
        self.limit = limit
        self.key = key


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


def _seconds(what: str, given: object) -> float:
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise InvalidOption(f"{what} must be 0 seconds or more, not {given!r}.")
    return min(seconds, MAX_DELAY_SECONDS)


# Tracebacks name them as users know them.
Retry.__module__ = Reject.__module__ = Throttled.__module__ = "tasklib"

"""Bounds on what may wait in a queue, and submissions that are refused by them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from tasklib.client.effects import Call
from tasklib.client.identity import OnBehalf
from tasklib.errors import InvalidOption, QueueFull
from tasklib.store import backpressure
from tasklib.store.backpressure import Pressure, QueueBound
from tasklib.tasks.options import MAX_INT, Options

REMEMBERED_SECONDS = 5.0
"""For how long a queue without bounds is not looked at again: so late new bounds may take effect."""
_MOST_REMEMBERED = 1000
_SHORTEST, _LONGEST = 1.0, 60.0
_NEXT_COUNT = 30.0
"""The leader counts every `sweep_interval_seconds`, 30 by default."""


class BackpressureCalls(OnBehalf):
    """The bounds of queues, for operators."""

    def bound_queue(self, queue: str, *, max_wait: float | None = None, max_pending: int | None = None) -> Call[bool]:
        """Refuse submissions while the oldest due task of a queue has waited longer than `max_wait` seconds, or more
        than `max_pending` due tasks wait. Replaces earlier bounds; without any, they are removed.

        Returns False if that changed nothing.
        """
        Options(queue=queue)  # checks it
        for name, value in (("max_wait", max_wait), ("max_pending", max_pending)):
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_INT
            ):
                raise InvalidOption(f"{name} must be a number above 0, at most {MAX_INT:,}, not {value!r}.")
        if max_pending is not None and not isinstance(max_pending, int):
            raise InvalidOption(f"max_pending must be a whole number, not {max_pending!r}.")
        by = self.identity.actor
        if max_wait is None and max_pending is None:
            changed: bool = yield backpressure.unbound(queue, by=by)
        else:
            changed = yield backpressure.bound(queue, max_wait, max_pending, by=by)
        return changed

    def queue_bounds(self) -> Call[list[QueueBound]]:
        """The queues that have bounds."""
        found: list[QueueBound] = yield backpressure.bounds()
        return found


class Unbounded:
    """Queues that had no bounds a moment ago, so that submissions to them need no look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def others(self, queues: Iterable[str]) -> list[str]:
        """Those that have to be looked at."""
        now = self._clock()
        return sorted(queue for queue in queues if self._until.get(queue, 0.0) <= now)

    def remember(self, looked_at: Iterable[str], found: Iterable[Pressure]) -> None:
        bounded = {pressure.queue for pressure in found}
        if len(self._until) > _MOST_REMEMBERED:
            self._until.clear()
        until = self._clock() + REMEMBERED_SECONDS
        self._until.update((queue, until) for queue in looked_at if queue not in bounded)


def refuse_full(found: Iterable[Pressure]) -> None:
    """QueueFull for the first queue that is over one of its bounds."""
    for queue in found:
        if queue.max_wait is not None and queue.oldest_age is not None and queue.oldest_age > queue.max_wait:
            # The longer it is over, the longer it takes to be worked off.
            after = min(max(queue.oldest_age - queue.max_wait, _SHORTEST), _LONGEST)
            what = f"its oldest due task has waited {queue.oldest_age:.0f} s, of {queue.max_wait:g} s at most"
            raise QueueFull(queue.queue, what, after)
        if queue.max_pending is not None and queue.pending is not None and queue.pending >= queue.max_pending:
            what = f"{queue.pending:,} due tasks wait, of {queue.max_pending:,} at most"
            raise QueueFull(queue.queue, what, _NEXT_COUNT)

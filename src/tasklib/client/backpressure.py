"""Bounds on what may wait in a queue or of a name, and submissions that are refused by them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from tasklib.client.effects import Call
from tasklib.client.identity import OnBehalf
from tasklib.errors import InvalidOption, QueueFull
from tasklib.store import backpressure
from tasklib.store.backpressure import NameBound, Pressure, QueueBound
from tasklib.store.submit import SubmitTerms
from tasklib.tasks.options import MAX_INT, Options, is_name

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
        return (yield from self._bound(f"queue:{queue}", max_wait, max_pending))

    def bound_name(self, name: str, *, max_wait: float | None = None, max_pending: int | None = None) -> Call[bool]:
        """The same for tasks of a name, whatever their queue: by what the leader counted last."""
        if not is_name(name):
            raise InvalidOption(f"name must be a string of 1 to 500 bytes, not {name!r}.")
        return (yield from self._bound(f"name:{name}", max_wait, max_pending))

    def queue_bounds(self) -> Call[list[QueueBound]]:
        """The queues that have bounds."""
        found: list[QueueBound] = yield backpressure.queue_bounds()
        return found

    def name_bounds(self) -> Call[list[NameBound]]:
        """The task names that have bounds."""
        found: list[NameBound] = yield backpressure.name_bounds()
        return found

    def _bound(self, subject: str, max_wait: float | None, max_pending: int | None) -> Call[bool]:
        for name, value in (("max_wait", max_wait), ("max_pending", max_pending)):
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_INT
            ):
                raise InvalidOption(f"{name} must be a number above 0, at most {MAX_INT:,}, not {value!r}.")
        if max_pending is not None and not isinstance(max_pending, int):
            raise InvalidOption(f"max_pending must be a whole number, not {max_pending!r}.")
        return (yield from self._store_bounds(subject, max_wait, max_pending))

    def _store_bounds(self, subject: str, max_wait: float | None, max_pending: int | None) -> Call[bool]:
        by = self.identity.actor
        if max_wait is None and max_pending is None:
            changed: bool = yield backpressure.unbound(subject, by=by)
        else:
            changed = yield backpressure.bound(subject, max_wait, max_pending, by=by)
        return changed


def subjects_of(kinds: Iterable[SubmitTerms]) -> set[str]:
    """The queues and names of these submissions, as bounds are stored for them."""
    return {subject for terms in kinds for subject in (f"queue:{terms.queue}", f"name:{terms.name}")}


class Unbounded:
    """Queues and names that had no bounds a moment ago, so that submissions to them need no look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def others(self, subjects: Iterable[str]) -> list[str]:
        """Those that have to be looked at."""
        now = self._clock()
        return sorted(subject for subject in subjects if self._until.get(subject, 0.0) <= now)

    def remember(self, looked_at: Iterable[str], found: Iterable[Pressure]) -> None:
        bounded = {pressure.subject for pressure in found}
        if len(self._until) > _MOST_REMEMBERED:
            self._until.clear()
        until = self._clock() + REMEMBERED_SECONDS
        self._until.update((subject, until) for subject in looked_at if subject not in bounded)


def refuse_full(found: Iterable[Pressure]) -> None:
    """QueueFull for the first queue or name that is over one of its bounds."""
    for each in found:
        kind, _, value = each.subject.partition(":")
        name = value if kind == "name" else None
        queue = value if kind == "queue" else ""
        if each.max_wait is not None and each.oldest_age is not None and each.oldest_age > each.max_wait:
            # The longer it is over, the longer it takes to be worked off.
            after = min(max(each.oldest_age - each.max_wait, _SHORTEST), _LONGEST)
            what = f"its oldest due task has waited {each.oldest_age:.0f} s, of {each.max_wait:g} s at most"
            raise QueueFull(queue, what, after, name=name)
        if each.max_pending is not None and each.pending is not None and each.pending >= each.max_pending:
            what = f"{each.pending:,} due tasks wait, of {each.max_pending:,} at most"
            raise QueueFull(queue, what, _NEXT_COUNT, name=name)

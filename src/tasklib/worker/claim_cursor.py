"""Where a worker's claims have got to in each lane, so that a busy one need not begin at the beginning each time.

What was claimed stays in the index until it is vacuumed, and for as long as any snapshot in the database might see it
(a report, a backup): a claim from the beginning reads past all of it. So a worker that claims much goes on where it
was, and looks from the beginning now and then: for other lanes, and for what came late.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tasklib.store.claim import Claimed, Lane, Place
from tasklib.worker.prefetch import Prefetch

_LOOK_EVERY_SECONDS = 0.1
_SHARE = 20
"""Claims from the beginning take at most one part in so many of a busy worker's time."""
_MANY = 100
"""Smaller claims of longer tasks begin at the beginning: that costs little, and keeps to the order at every moment."""


class ClaimCursor:
    """The cursor behind the last claim's tasks, while they are worth going on from."""

    def __init__(self, prefetch: Prefetch) -> None:
        self.behind: dict[Lane, Place] = {}
        self.last: Lane | None = None
        """The lane of the last task that was claimed."""
        self._names = frozenset[str]()
        self._prefetch = prefetch
        self._until = 0.0

    @property
    def are_short(self) -> bool:
        """What was claimed last is short as far as is known now: more of it may be claimed ahead."""
        return bool(self._names) and self._prefetch.are_short(self._names)

    @property
    def worth_going_on(self) -> bool:
        return bool(self.behind) and time.monotonic() < self._until

    def looked(self, asked: int, claimed: Sequence[Claimed], seconds: float) -> None:
        """A claim from the beginning brought these, in order, and took so long."""
        self.behind.clear()
        self._until = time.monotonic() + max(_LOOK_EVERY_SECONDS, _SHARE * seconds)
        self.went_on(asked, claimed)

    def went_on(self, asked: int, claimed: Sequence[Claimed]) -> None:
        """A claim that went on from here brought these, in order."""
        last = {(c.queue, c.name, c.required_capabilities, c.priority): c for c in claimed}
        behind = {c.lane: c.place for c in last.values()}
        self.last = next(reversed(behind), self.last)
        self._names = frozenset(lane.name for lane in behind)
        if len(claimed) == asked and (self.are_short or asked >= _MANY):
            self.behind.update(behind)
        else:
            self.behind.clear()  # the lanes are empty, or others may be better by now

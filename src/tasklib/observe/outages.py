"""When to speak of a lost database: a worker has several connections, but its user has one database."""

from __future__ import annotations

PURPOSES = frozenset({"tasks", "maintenance", "listen"})


class Outages:
    """Turns the loss and return of single connections into outages.

    A connection that lay idle through an outage notices only when it is used next, perhaps long after the database is
    back. Such a loss is not reported again.
    """

    def __init__(self) -> None:
        self._down = False
        self._unaware: set[str] = set()

    def begins_with(self, purpose: str) -> bool:
        """True if this loss is the first of an outage, which is reported."""
        if self._down:
            self._unaware.discard(purpose)
            return False
        if purpose in self._unaware:
            self._unaware.discard(purpose)
            return False
        self._down = True
        self._unaware = set(PURPOSES - {purpose})
        return True

    def ends_with(self, purpose: str) -> bool:
        """True if this return ends an outage: the first connection that is back."""
        was_down, self._down = self._down, False
        return was_down

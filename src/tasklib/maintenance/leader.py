"""Leadership: a lease on one row, with a term that grows whenever it changes hands.

    every candidate ── lead.sql, every third of the lease ──▶ leadership(holder, term, expires_at)
                                                                │
    the holder ─── maintenance statements carry (holder, term) ─┘ and change nothing once the term is over

Two things keep a former leader harmless: it stops at a deadline counted on its own monotonic clock from before
the statement that gave it the lead was sent; and should it be paused past that, the database refuses its statements,
because each checks the term in the same transaction in which it writes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from tasklib.config import Config
from tasklib.db.query import Runs
from tasklib.errors import DatabaseUnavailable
from tasklib.events import Events, LeadershipLost, LeadershipTaken
from tasklib.maintenance.failures import Failures
from tasklib.store import fleet
from tasklib.store.fleet import Term

_RENEW_AT = 1 / 3
_AFTER_THE_END_SECONDS = 0.5
"""Candidates come within this time after the end of a lead: not all at once, and soon."""


class Leadership:
    """This process's part in the election."""

    def __init__(self, config: Config, db: Runs, events: Events) -> None:
        self._config = config
        self._db = db
        self._events = events
        self._term: Term | None = None
        self._deadline = 0.0
        self._taken = asyncio.Event()
        self._election: asyncio.Task[None] | None = None
        self._free_in: float | None = None
        """Seconds until another process's lead ends unless it is kept, as of our last attempt."""
        self._may_hold: str | None = None
        """The name under which the database may know us as its leader: also after an answer that was lost."""

    @property
    def is_ours(self) -> bool:
        return self._term is not None and time.monotonic() < self._deadline

    async def term(self) -> Term:
        """Wait until this process leads; the term it leads in."""
        while not self.is_ours:
            self._taken.clear()
            await self._taken.wait()
        assert self._term is not None
        return self._term

    async def run_for_it(self, holder: Callable[[], str], failures: Failures) -> None:
        """Take the lead when it is free and keep it, for ever."""
        while True:
            with failures.survived("election"):
                # Stopped in the middle of a statement, we would not know whether it gave us the lead: resign() waits
                # for the answer.
                self._election = asyncio.create_task(self._campaign(holder()))
                await asyncio.shield(self._election)
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        pause = self._config.leader_lease_seconds * _RENEW_AT * random.uniform(0.7, 1.0)
        if self._free_in is None:
            return pause
        return min(pause, max(self._free_in, 0.0) + random.uniform(0.0, _AFTER_THE_END_SECONDS))

    async def resign(self) -> None:
        """Give the lead up, so that another process has it at once. Called when `run_for_it` has ended."""
        if self._election is not None:
            await asyncio.gather(self._election, return_exceptions=True)
        self._term = None
        if self._may_hold is not None:
            await self._db.run(fleet.resign(self._may_hold))

    async def _campaign(self, holder: str) -> None:
        before = time.monotonic()
        self._may_hold = holder
        self._free_in = None
        try:
            candidacy = await self._db.run(fleet.campaign(holder, self._config.leader_lease_seconds))
        except DatabaseUnavailable:
            term = self._term if self.is_ours else None
            before = self._deadline - self._config.leader_lease_seconds
        else:
            term = candidacy.term
            self._may_hold = term.holder if term is not None else None
            self._free_in = candidacy.free_in if term is None else None
        if term != self._term:
            if self._term is not None:
                self._events.emit(LeadershipLost(self._term.number))
            if term is not None:
                self._events.emit(LeadershipTaken(term.number))
        self._term = term
        if term is not None:
            self._deadline = before + self._config.leader_lease_seconds
            self._taken.set()

"""One process's part in the maintenance of the fleet: it stands for election and performs the duties while it leads.

Any process with a database may take part: a worker (worker/postgres_door.py) or a server (server/leading.py).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tasklib.config import Config
from tasklib.db.link import Link
from tasklib.db.query import Runs
from tasklib.events import DatabaseBack, DatabaseLost, Events
from tasklib.maintenance.calendar import duties_of
from tasklib.maintenance.duties import perform
from tasklib.maintenance.failures import Failures
from tasklib.maintenance.leader import Leadership
from tasklib.maintenance.telling import Teller
from tasklib.tally import Tallier


class Maintenance:
    """The election, the duties, and what the process has counted."""

    def __init__(
        self, config: Config, control: Runs, events: Events, tallier: Tallier, holder: Callable[[], str]
    ) -> None:
        self._config = config
        self._events = events
        self._holder = holder
        self.failures = Failures(events, tallier)
        # The election must not wait behind a long sweep: duties have a connection of their own, which only a leader
        # opens.
        self._link = Link(
            config,
            "maintenance",
            on_lost=lambda purpose, reason: events.emit(DatabaseLost(purpose, reason)),
            on_back=lambda purpose: events.emit(DatabaseBack(purpose)),
        )
        self.leadership = Leadership(config, control, events)
        self.teller = Teller(tallier, control, holder)

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on for as long as the process runs."""
        return [
            self.teller.tell_for_ever(self.failures),
            self.leadership.run_for_it(self._holder, self.failures),
            perform(duties_of(self._config), self._link, self._config, self.leadership, self._events, self.failures),
        ]

    async def resign(self) -> None:
        """Hand over the last counts and the lead: another process need not wait until this one is missed."""
        with self.failures.survived("stats"):
            await self.teller.tell()
        with self.failures.survived("election"):  # if this fails, the lead runs out by itself
            await self.leadership.resign()

    def close(self) -> None:
        self._link.drop()

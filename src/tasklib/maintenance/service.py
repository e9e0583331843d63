"""One process's part in the maintenance of the fleet: it stands for election and performs the duties while it leads.

Any process with a database may take part: a worker (backends/postgres/backend.py) or a server (server/leading.py).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tasklib.config import Config
from tasklib.db.query import Runs
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import DatabaseBack, DatabaseLost, Events
from tasklib.maintenance.calendar import duties_of
from tasklib.maintenance.duties import perform
from tasklib.maintenance.failures import Failures
from tasklib.maintenance.leader import Leadership
from tasklib.maintenance.schedules import Scheduler
from tasklib.maintenance.stats_reporter import StatsReporter
from tasklib.stats import StatsCollector


class Maintenance:
    """The election, the duties, and what the process has counted."""

    def __init__(
        self, config: Config, control: Runs, events: Events, collector: StatsCollector, holder: Callable[[], str]
    ) -> None:
        self._config = config
        self._events = events
        self._holder = holder
        self.failures = Failures(events, collector)
        # The election must not wait behind a long sweep: duties have a connection of their own, which only a leader
        # opens.
        self._db = self._connection("maintenance")
        # Nor must a slot: schedules are fired on time, whatever is being swept.
        self._schedules_db = self._connection("schedules")
        self.leadership = Leadership(config, control, events)
        self.scheduler = Scheduler(self._db, self._schedules_db, self.leadership, events, shard=config.shard)
        self.stats_reporter = StatsReporter(collector, control, holder)

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on for as long as the process runs."""
        return [
            self.stats_reporter.report_forever(self.failures),
            self.leadership.run_for_it(self._holder, self.failures),
            perform(duties_of(self._config), self._db, self._config, self.leadership, self._events, self.failures),
            self.scheduler.fire_forever(self.failures),
        ]

    async def resign(self) -> None:
        """Hand over the last counts and the lead: another process need not wait until this one is missed."""
        with self.failures.survived("stats"):
            await self.stats_reporter.tell()
        with self.failures.survived("election"):  # if this fails, the lead expires
            await self.leadership.resign()

    def close(self) -> None:
        self._db.drop()
        self._schedules_db.drop()

    def _connection(self, purpose: str) -> ReconnectingConnection:
        return ReconnectingConnection(
            self._config,
            purpose,
            on_lost=lambda purpose, reason: self._events.emit(DatabaseLost(purpose, reason)),
            on_back=lambda purpose: self._events.emit(DatabaseBack(purpose)),
        )

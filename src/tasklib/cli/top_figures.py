"""What `tasklib top` shows, read from the database: a few queries that cost the same whatever the table holds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.stats import Stat
from tasklib.store import backlog, dashboard, dead_letters, fleet, stats, top
from tasklib.store import pauses as pausing
from tasklib.store.backlog import COUNT_UP_TO, Backlog
from tasklib.store.dashboard import RecentFailure
from tasklib.store.fleet import WorkerInfo
from tasklib.store.pauses import Paused
from tasklib.store.stats import Point
from tasklib.store.top import Running

MINUTES = 20
_MOST_RUNNING_SHOWN = 50
_MOST_FAILURES = 10
_RATE_SECONDS = 10.0
"""Workers report their counts every few seconds: a rate over less would jump."""
LEVELS = ("high", "medium", "low")
__all__ = ["COUNT_UP_TO", "LEVELS", "MINUTES", "Figures", "QueueDepth", "Rate", "look"]


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Due tasks of a queue by level, by their own priority."""

    queue: str
    by_level: Mapping[str, int]
    is_capped: bool
    oldest_seconds: float

    @property
    def count(self) -> int:
        return sum(self.by_level.values())


@dataclass(frozen=True, slots=True)
class Figures:
    """One look."""

    totals: Sequence[Stat]
    minutes: Sequence[Point]
    names: Sequence[Point]
    queues: Sequence[QueueDepth]
    """Those with due tasks, the deepest first."""
    workers: Sequence[WorkerInfo]
    running: Sequence[Running]
    load: Mapping[str, int]
    """How many tasks each worker holds."""
    leader: str | None
    """The id of the worker or the server that leads."""
    failures: Sequence[RecentFailure] = ()
    """What failed lately, the latest first."""
    pauses: Sequence[Paused] = ()
    now: datetime | None = None
    """The database's clock."""
    at: float = field(default_factory=time.monotonic)

    def total(self, *outcomes: str) -> int:
        return sum(t.count for t in self.totals if t.key.outcome in outcomes)

    @property
    def ended(self) -> int:
        """Attempts that ended by themselves, since ever."""
        return self.total("completed", "failed", "dead_letter")


def look(config: Config) -> Call[Figures]:
    """One sample of all figures."""
    totals: list[Stat] = yield stats.totals()
    minutes: list[Point] = yield stats.series(MINUTES, 60)
    names: list[Point] = yield stats.by_name(MINUTES, limit=20)
    known: list[WorkerInfo] = yield fleet.workers()
    leader: str | None = yield fleet.leader()
    running: list[Running] = yield top.running(_MOST_RUNNING_SHOWN)
    load: dict[str, int] = yield top.load()
    due: list[Backlog] = yield backlog.backlog()
    failures: list[RecentFailure] = yield dashboard.recent_failures(_MOST_FAILURES)
    pauses: list[Paused] = yield pausing.pauses()
    now: datetime = yield dead_letters.now()
    workers = [w for w in known if w.status != "dead"]
    return Figures(totals, minutes, names, _depths(due), workers, running, load, leader, failures, pauses, now)


def _depths(due: Sequence[Backlog]) -> list[QueueDepth]:
    found = []
    for queue in {d.queue for d in due}:
        levels = [d for d in due if d.queue == queue]
        by_level = {d.level: d.depth for d in levels}
        oldest = max(d.oldest_age_seconds for d in levels)
        found.append(QueueDepth(queue, by_level, any(d.is_capped for d in levels), oldest))
    return sorted(found, key=lambda d: (-d.count, d.queue))


class Rate:
    """Attempts per second, from one look to the next."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def after(self, figures: Figures) -> float | None:
        """The rate over the last seconds; None before there are two looks."""
        self._looks.append((figures.at, figures.ended))
        while len(self._looks) > 2 and figures.at - self._looks[1][0] >= _RATE_SECONDS:
            self._looks.popleft()
        began, before = self._looks[0]
        return (figures.ended - before) / (figures.at - began) if figures.at > began else None

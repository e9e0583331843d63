"""What `tasklib top` shows, read from the database: a few queries that cost the same whatever the table holds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.stats import Stat
from tasklib.store import backlog, fleet, stats, top
from tasklib.store.backlog import COUNT_UP_TO, Backlog
from tasklib.store.fleet import WorkerInfo
from tasklib.store.stats import Point
from tasklib.store.top import Running

MINUTES = 20
_MOST_RUNNING_SHOWN = 50
_RATE_SECONDS = 10.0
"""Workers report their counts every few seconds: a rate over less would jump."""
LEVELS = ("high", "medium", "low")


@dataclass(frozen=True, slots=True)
class LevelDepth:
    """Due tasks at a level, by their own priority."""

    level: str
    count: int
    oldest_seconds: float | None

    @property
    def is_capped(self) -> bool:
        return self.count >= COUNT_UP_TO


@dataclass(frozen=True, slots=True)
class Figures:
    """One look."""

    totals: Sequence[Stat]
    minutes: Sequence[Point]
    names: Sequence[Point]
    depths: Sequence[LevelDepth]
    workers: Sequence[WorkerInfo]
    running: Sequence[Running]
    load: Mapping[str, int]
    """How many tasks each worker holds."""
    leader: str | None
    """The id of the worker or the server that leads."""
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
    depths = []
    for level in LEVELS:
        queues = [queue for queue in due if queue.level == level]
        oldest = max((queue.oldest_age_seconds for queue in queues), default=None)
        depths.append(LevelDepth(level, min(COUNT_UP_TO, sum(queue.depth for queue in queues)), oldest))
    return Figures(totals, minutes, names, depths, [w for w in known if w.status != "dead"], running, load, leader)


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

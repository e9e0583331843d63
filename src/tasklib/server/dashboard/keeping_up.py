"""Whether queues and names keep up: what is behind and since when, what comes in and goes out, which workers fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tasklib.server.dashboard.chart_data import Runs
from tasklib.store import backpressure, behind, doctor
from tasklib.store.behind import BEHIND_SECONDS, Behind
from tasklib.store.doctor import WaitingLane
from tasklib.store.fleet import WorkerInfo
from tasklib.store.levels import QueueLevel
from tasklib.store.pauses import Paused
from tasklib.store.stats import Point

RATE_MINUTES = 5
_READ_LANES, _LOOK_AT_TASKS = 500, 1_000
"""What no worker takes is sought in so many lanes, among so many tasks at their heads. The doctor looks at more."""
_MOST_BEHIND = 50
"""So many are looked up in the leader's counts; the others are behind since a moment that isn't shown."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How much comes in and goes out by the minute, in the last minutes whose submissions were counted."""

    submitted: float | None
    """None: submissions were not counted lately."""
    finished: float
    minutes: int

    @property
    def grows(self) -> float:
        """How much more comes in than goes out by the minute; 0 if that isn't known."""
        return 0.0 if self.submitted is None else max(0.0, self.submitted - self.finished)


def rates(points: list[Point]) -> Rates:
    """From points of a minute each, the last of which isn't over."""
    over = points[:-1]
    counted = [p for p in over if p.counted_seconds() >= 60][-RATE_MINUTES:]
    some = counted or over[-RATE_MINUTES:]
    number = max(1, len(some))
    submitted = sum(p.of("submitted") for p in counted) / number if counted else None
    return Rates(submitted, sum(p.finished for p in some) / number, number)


async def queues_behind(
    run: Runs, waiting: Iterable[QueueLevel], paused: Iterable[Paused], only: str | None = None
) -> list[Behind]:
    """Queues that are behind, the worst first. A paused one isn't: it waits for a person."""
    held = {p.value for p in paused if p.kind == "queue"}
    oldest: dict[str, float] = {}
    for level in waiting:
        if level.queue not in held and only in (None, level.queue):
            oldest[level.queue] = max(oldest.get(level.queue, 0.0), level.oldest_age_seconds)
    bounds = {b.queue: b.max_wait for b in await run(backpressure.queue_bounds()) if b.max_wait is not None}
    return await _behind(run, "queue", oldest, bounds)


async def name_behind(run: Runs, name: str, oldest: float | None) -> Behind | None:
    """Whether the tasks of a name are behind."""
    found = await _behind(run, "name", {} if oldest is None else {name: oldest}, {})
    return found[0] if found else None


async def _behind(run: Runs, kind: str, oldest: Mapping[str, float], bounds: Mapping[str, float]) -> list[Behind]:
    late = behind.late(oldest, bounds)
    if not late:
        return []
    asked = list(late)[:_MOST_BEHIND]
    looks = await run(behind.looks(kind, asked))
    now = datetime.now(UTC)
    return [
        behind.since(value, looks.get(value, []), late[value], bounds.get(value, BEHIND_SECONDS), now)
        for value in asked
    ]


async def unfit(run: Runs, workers: Sequence[WorkerInfo]) -> list[WaitingLane]:
    """Due tasks that none of these workers takes, by the first of each kind."""
    lanes = await run(doctor.lanes(_READ_LANES, _LOOK_AT_TASKS))
    return [
        lane
        for lane in lanes
        if lane.waited_seconds >= 0
        and not any(w.may_take(lane.queue, lane.name, lane.required_capabilities) for w in workers)
    ]

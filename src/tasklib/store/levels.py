"""How deep the queues are, how many tasks are in each state, how the fleet is: in bounded time, honestly.

Each look reads a bounded number of rows, found by index, whatever the table holds. Where that is not enough to know,
the answer says so: `is_estimated`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter

from tasklib.db.query import Query, Rows
from tasklib.store.stats import check_steps

MOST_COUNTED = 2_000
"""Waiting tasks are counted up to here in each queue and level; beyond it the leader's last count stands."""
_MOST_IN_ALL = 6_000
_MOST_LANES = 1_000
_SMALL_BYTES = 512 * 1024
_FRESH_SECONDS = 300.0
"""How old the leader's count may be: it counts every `sweep_interval_seconds`, 30 by default."""
NAMES = ("high", "medium", "low")


@dataclass(frozen=True, slots=True)
class QueueLevel:
    """The waiting tasks of a queue at a level, by their own priority; tasks that are not due yet don't count."""

    queue: str
    level: str
    depth: int
    is_estimated: bool
    """True if there were too many to count: then this is the leader's last count."""
    is_capped: bool
    """True if it is at least this: the leader stopped counting too, or there is none."""
    oldest_age_seconds: float
    p50: float | None
    p95: float | None
    p99: float | None
    """How long half, 95% and 99% of them have waited at most, in seconds."""
    is_partial: bool
    """True if there are more queues and names than a look can see."""


@dataclass(frozen=True, slots=True)
class Depth:
    """How deep the queues were at one moment, by level or by queue. One at which nothing waited is left out."""

    moment: datetime
    by_level: Mapping[str, int]
    oldest_age_seconds: Mapping[str, float]
    is_capped: bool
    is_known: bool = True
    """False if the leader didn't count in this step."""

    @property
    def depth(self) -> int | None:
        """How many waited in all; None if that is not known."""
        return sum(self.by_level.values()) if self.is_known else None

    @property
    def oldest(self) -> float | None:
        """How long the oldest had waited, 0 if none waited; None if that is not known."""
        return max(self.oldest_age_seconds.values(), default=0.0) if self.is_known else None


@dataclass(frozen=True, slots=True)
class StateCount:
    """How many tasks are in a state. None: unknown until the table is analysed."""

    state: str
    count: int | None
    is_estimated: bool


@dataclass(frozen=True, slots=True)
class FleetFigures:
    """The fleet and the table in a few numbers."""

    workers: Mapping[str, tuple[int, int, int]]
    """By status: how many, their slots, and how many of these are taken."""
    term: int | None
    has_leader: bool
    snapshot_age_seconds: float | None
    dead_tuples: int
    oldest_xmin_age: int
    """How many transactions ago the oldest snapshot was taken that this user can see."""
    oldest_transaction_seconds: float
    schedule_late_seconds: float = 0.0
    """How long ago the oldest slot was that is due and not decided."""
    schedules_paused: int = 0
    schedules_failing: int = 0
    """Schedules whose last run became a dead letter within a day, up to 1,000 dead letters ago."""
    each: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    """Of a fleet over shards, of each worker by its id: its status, its slots, and how many are taken."""

    def slots(self, *statuses: str) -> tuple[int, int]:
        """How many slots workers of these statuses have, and how many are taken."""
        some = [self.workers[s] for s in statuses if s in self.workers]
        return sum(w[1] for w in some), sum(w[2] for w in some)


def levels() -> Query[list[QueueLevel]]:
    """What waits now, by queue and level; a level at which nothing waits is left out."""
    parameters = {
        "most": MOST_COUNTED,
        "most_in_all": _MOST_IN_ALL,
        "most_lanes": _MOST_LANES,
        "fresh": _FRESH_SECONDS,
    }
    return Query("levels", parameters, lambda rows: [QueueLevel(*row) for row in rows], repeatable=True)


def depth_series(
    minutes: int,
    step_seconds: int,
    *,
    queue: str | None = None,
    name: str | None = None,
    ago: float = 0.0,
    by_queue: bool = False,
) -> Query[list[Depth]]:
    """How deep the queues were in the last minutes, at the end of each step, the oldest first; or the tasks of a name.

    `by_queue`: the figures are those of each queue, instead of each level.

    Counts are kept by the minute for 3 hours, by ten minutes for 8 days.
    """
    check_steps("depth_series", minutes, step_seconds)
    parameters = {
        "seconds": minutes * 60.0, "step": step_seconds, "ago": float(ago), "queue": queue, "name": name,
        "by_queue": by_queue,
    }  # fmt: skip
    return Query("depth_series", parameters, _depths, repeatable=True)


def state_counts() -> Query[list[StateCount]]:
    """How many tasks are in each state now."""
    parameters = {
        "most": MOST_COUNTED,
        "most_lanes": _MOST_LANES,
        "fresh": _FRESH_SECONDS,
        "small_bytes": _SMALL_BYTES,
        "most_small": _SMALL_BYTES // 50,  # more rows don't fit
    }
    return Query("state_counts", parameters, lambda rows: [StateCount(*row) for row in rows], repeatable=True)


def fleet_figures(*, each: bool = False) -> Query[FleetFigures]:
    """Workers by status, the leader, and what the table suffers from; and each worker, if that is wanted."""
    return Query("fleet_figures", {"each": each}, _figures, repeatable=True)


def _depths(rows: Rows) -> list[Depth]:
    """Rows of (moment, whether the leader counted, level, depth, capped, oldest)."""
    found = []
    for moment, some in groupby(rows, key=itemgetter(0)):
        steps = list(some)
        waiting = [row for row in steps if row[2] is not None]
        found.append(
            Depth(
                moment,
                {level: depth for _, _, level, depth, _, _ in waiting},
                {level: oldest for _, _, level, _, _, oldest in waiting},
                any(capped for _, _, _, _, capped, _ in waiting),
                steps[0][1],
            )
        )
    return found


def _figures(rows: Rows) -> FleetFigures:
    workers, *rest, each = rows[0]
    by_id = {id_: (status, slots, taken) for id_, (status, slots, taken) in (each or {}).items()}
    figures = FleetFigures({status: (w[0], w[1], w[2]) for status, w in workers.items()}, *rest)
    return replace(figures, each=by_id)

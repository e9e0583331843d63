"""What each slot of a worker ran recently, assembled at a bounded cost.

Running attempts are read from their leases, ended ones from the rows and histories of the latest tasks. Attempts that
this server saw running are remembered, and their ends looked up by id and token. An end that no row has on record is
drawn as unknown, up to the last moment the attempt was seen running.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tasklib.db.database import AsyncDatabase
from tasklib.formatting import duration
from tasklib.store import dashboard
from tasklib.store.dashboard import RunningAttempt

WINDOW = timedelta(minutes=15)
_MOST_REMEMBERED = 5000
_MOST_ROWS = 12
_LEAST_WIDTH = 0.35
"""Percent of the window: the shortest attempt is still to be seen."""


@dataclass(frozen=True, slots=True)
class SlotAttempt:
    """An attempt on a worker."""

    id: UUID
    name: str
    worker: str
    started_at: datetime
    ended_at: datetime | None
    """None while it runs. If it is not known: when the attempt was last seen running."""
    state: str
    """running, completed, cancelled, failed, dead_letter, or unknown: it has ended, and no row says how."""
    seen_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DrawnAttempt:
    """A run as it is drawn: percent of the window from its left."""

    id: UUID
    row: int
    x: float
    width: float
    state: str
    text: str


class Sightings:
    """Remembers what was seen to run. `await look(database, workers)` looks at these again, and gives what is known of
    all."""

    def __init__(self) -> None:
        self._seen: dict[tuple[UUID, int], SlotAttempt] = {}

    async def look(self, database: AsyncDatabase, workers: Sequence[str]) -> list[SlotAttempt]:
        running = await database.run(dashboard.running(workers))
        await self._find_ends(database, running, frozenset(workers))
        recent = await database.run(dashboard.recent_attempts(WINDOW.total_seconds()))
        known = {
            (r.id, r.token): SlotAttempt(r.id, r.name, r.worker, r.started_at, r.ended_at, r.state) for r in recent
        }
        return list({**known, **self._seen}.values())

    async def _find_ends(
        self, database: AsyncDatabase, running: Sequence[RunningAttempt], workers: frozenset[str]
    ) -> None:
        now = datetime.now(UTC)
        going = {(r.id, r.token): r for r in running}
        gone = [
            key
            for key, run in self._seen.items()
            if run.ended_at is None and run.worker in workers and key not in going
        ]
        ends = {(e.id, e.token): e for e in await database.run(dashboard.ended(gone))} if gone else {}
        for key in gone:
            run, end = self._seen[key], ends.get(key)
            if end is None or end.state is None or end.at is None:
                self._seen[key] = replace(run, ended_at=run.seen_at, state="unknown")
            else:
                self._seen[key] = replace(run, ended_at=end.at, state=end.state)
        for key, r in going.items():
            self._seen[key] = SlotAttempt(r.id, r.name, r.worker, r.started_at, None, "running", now)
        self._forget(now)

    def _forget(self, now: datetime) -> None:
        old = [k for k, run in self._seen.items() if (run.ended_at or run.seen_at or now) < now - WINDOW]
        surplus = len(self._seen) - len(old) - _MOST_REMEMBERED
        if surplus > 0:
            ended = sorted((k for k, r in self._seen.items() if r.ended_at), key=lambda k: self._seen[k].started_at)
            old += ended[:surplus]
        for key in old:
            self._seen.pop(key, None)


def drawn(runs: Iterable[SlotAttempt], now: datetime, slots: int) -> list[DrawnAttempt]:
    """The runs of one worker in rows, one for each slot at most.

    A prefetched task is leased before a slot is free: it is drawn from the moment when one was.
    """
    start = now - WINDOW
    most = min(slots, _MOST_ROWS)
    free_from: list[datetime] = []
    pieces = []
    for run in sorted(runs, key=lambda r: (r.started_at, r.id)):
        end = run.ended_at or now
        row = next((i for i, moment in enumerate(free_from) if moment <= run.started_at), len(free_from))
        began = run.started_at
        if row >= most:
            row = min(range(most), key=free_from.__getitem__)
            began = free_from[row]
            if end <= began:  # too short to be told apart from its neighbours
                continue
        free_from[row : row + 1] = [end]
        x = max(0.0, _percent(began - start))
        width = max(_LEAST_WIDTH, _percent(end - start) - x)
        pieces.append(
            DrawnAttempt(run.id, row, round(min(x, 100 - _LEAST_WIDTH), 3), round(width, 3), run.state, _said(run, end))
        )
    return pieces


def _said(run: SlotAttempt, end: datetime) -> str:
    took = duration((end - run.started_at).total_seconds())
    if run.state == "unknown":
        return f"{run.name[:120]}: last seen running after {took}; how it ended is not known"
    return f"{run.name[:120]}: {run.state.replace('_', ' ')} {'for' if run.ended_at is None else 'in'} {took}"


def _percent(span: timedelta) -> float:
    return 100 * span / WINDOW

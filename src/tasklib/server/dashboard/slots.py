"""What each slot of a worker ran recently, assembled at a bounded cost.

What runs is read from its leases, what failed from the histories of the latest tasks. A row that is completed doesn't
say who ran it; so attempts that this server has seen running are remembered, and their ends looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tasklib.formatting import duration
from tasklib.server.services import Services
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
    """None while it runs."""
    state: str
    token: int = 0


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
    """Remembers what was seen to run; `await look(services)` looks again and gives all runs of the window."""

    def __init__(self) -> None:
        self._seen: dict[tuple[UUID, int], SlotAttempt] = {}

    async def look(self, services: Services) -> list[SlotAttempt]:
        running = await services.run(dashboard.running())
        await self._find_ends(services, running)
        failed = await services.run(dashboard.failed_attempts(WINDOW.total_seconds()))
        known = {(run.id, run.started_at) for run in self._seen.values()}
        return [
            *self._seen.values(),
            *(
                SlotAttempt(f.id, f.name, f.worker, f.started_at, f.ended_at, "failed")
                for f in failed
                if (f.id, f.started_at) not in known
            ),
        ]

    async def _find_ends(self, services: Services, running: Sequence[RunningAttempt]) -> None:
        going = {(r.id, r.token): r for r in running}
        gone = [key for key, run in self._seen.items() if run.ended_at is None and key not in going]
        ends = {end.id: end for end in await services.run(dashboard.ended(gone))} if gone else {}
        now = datetime.now(UTC)
        for key in gone:
            end = ends.get(key[0])
            # Without an end it was leased again: that attempt failed, and ended between two looks.
            state, at = (end.state, end.at) if end else ("failed", now)
            self._seen[key] = replace(self._seen[key], ended_at=at, state=state)
        for key, r in going.items():
            self._seen.setdefault(key, SlotAttempt(r.id, r.name, r.worker, r.started_at, None, "running", r.token))
        self._forget(now)

    def _forget(self, now: datetime) -> None:
        old = [k for k, run in self._seen.items() if run.ended_at is not None and run.ended_at < now - WINDOW]
        surplus = len(self._seen) - len(old) - _MOST_REMEMBERED
        if surplus > 0:
            ended = sorted((k for k, r in self._seen.items() if r.ended_at), key=lambda k: self._seen[k].started_at)
            old += ended[:surplus]
        for key in old:
            self._seen.pop(key, None)


def drawn(runs: Iterable[SlotAttempt], now: datetime) -> list[DrawnAttempt]:
    """The runs of one worker in rows, as few as do without overlap."""
    start = now - WINDOW
    free_from: list[datetime] = []
    pieces = []
    for run in sorted(runs, key=lambda r: (r.started_at, r.id)):
        end = run.ended_at or now
        row = next((i for i, moment in enumerate(free_from) if moment <= run.started_at), len(free_from))
        if row >= _MOST_ROWS:
            continue
        free_from[row : row + 1] = [end]
        x = max(0.0, _percent(run.started_at - start))
        width = max(_LEAST_WIDTH, _percent(end - start) - x)
        took = "for" if run.ended_at is None else "in"
        text = (
            f"{run.name[:120]}: {run.state.replace('_', ' ')} {took} {duration((end - run.started_at).total_seconds())}"
        )
        pieces.append(DrawnAttempt(run.id, row, round(min(x, 100 - _LEAST_WIDTH), 3), round(width, 3), run.state, text))
    return pieces


def _percent(span: timedelta) -> float:
    return 100 * span / WINDOW

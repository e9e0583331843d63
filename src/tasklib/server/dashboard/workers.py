"""The workers: load, capabilities, status, timeline of their slots; one of them; draining."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Form, Request
from starlette.responses import Response

from tasklib.errors import WorkerNotFound
from tasklib.server.access import client_of
from tasklib.server.dashboard.chart_data import PERIODS, ChartQuery, Subject
from tasklib.server.dashboard.screens import Operator, Serving, Viewer, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.server.dashboard.slots import WINDOW, DrawnAttempt, Sightings, SlotAttempt, drawn
from tasklib.server.dashboard.subjects import worker_charts
from tasklib.server.problems import Problem
from tasklib.server.services import Services
from tasklib.store import fleet
from tasklib.store.fleet import WorkerInfo

router = screen_router()

_MOST = 100
"""Workers with a timeline on one page."""
_MOST_RUNS = 50
OF_WORKERS = ("15m", "1h", "6h", "24h")
"""Attempts of single workers are kept for two days."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A worker and what its slots ran."""

    info: WorkerInfo
    pieces: list[DrawnAttempt]
    rows: int
    is_late: bool
    """Its heartbeat is overdue."""


@router.get("/workers")
async def workers(request: Request, principal: Viewer, services: Serving) -> Response:
    known = await services.run(fleet.workers())
    live = [w for w in known if w.status != "dead"]
    first = sorted(live, key=lambda w: (not w.is_leader, w.started_at))[:_MOST]
    runs = await _sightings(request).look(services.client.database, [w.id for w in first])
    now = datetime.now(UTC)
    shown = []
    for one in first:
        shown.append(_shown(one, [r for r in runs if r.worker == one.id], now, services))
    return page(
        request,
        "workers.html",
        workers=shown,
        count=len(live),
        dead=[w for w in reversed(known) if w.status == "dead"][:_MOST],
        slots=sum(w.capacity for w in live),
        taken=sum(w.current_load for w in live),
        leader=(leader := await services.run(fleet.leader())),
        leader_works=any(w.id == leader for w in live),
        versions=Counter(w.version for w in live),
        minutes=int(WINDOW.total_seconds() // 60),
    )


@router.get("/workers/{id:path}")
async def worker(
    request: Request, principal: Viewer, services: Serving, id: str, period: str = "1h", compare: str = "1"
) -> Response:
    info = next((w for w in await services.run(fleet.workers()) if w.id == id), None)
    query = ChartQuery("outcomes", period, compare=compare == "1", subject=Subject(worker=id)).known()
    charts, whole = await worker_charts(services, query)
    runs = [run for run in await _sightings(request).look(services.client.database, [id]) if run.worker == id]
    if info is None and not runs and not whole.attempts:
        raise Problem(
            404, "not_found", "No such worker", "It is gone, or never was: its attempts are kept for two days."
        )
    now = datetime.now(UTC)
    return page(
        request,
        "worker.html",
        id=id,
        worker=_shown(info, runs, now, services) if info else None,
        query=query,
        periods=[(key, key) for key in PERIODS if key in OF_WORKERS],
        charts=charts,
        whole=whole,
        runs=sorted(runs, key=lambda run: run.started_at, reverse=True)[:_MOST_RUNS],
        minutes=int(WINDOW.total_seconds() // 60),
        search=lambda *terms: "/tasks?" + urlencode({"q": " ".join([*query.subject.terms(), *terms])}),
    )


@router.post("/workers/drain")
async def drain(
    request: Request,
    principal: Operator,
    services: Serving,
    id: Annotated[str, Form(min_length=1, max_length=20_000)],
) -> Response:
    try:
        await client_of(principal, services).drain_worker(id)
    except WorkerNotFound as e:
        return done(request, "/workers", str(e)[:300], "bad")
    return done(request, "/workers", f"Asked {id[:120]} to drain: it finishes its tasks, and ends.")


def _shown(info: WorkerInfo, runs: Sequence[SlotAttempt], now: datetime, services: Services) -> Shown:
    pieces = drawn(runs, now, info.capacity)
    rows = max((p.row for p in pieces), default=-1) + 1
    late = info.seconds_since_heartbeat > 2 * services.config.heartbeat_interval_seconds
    return Shown(info, pieces, max(rows, 1), late)


def _sightings(request: Request) -> Sightings:
    """One memory for all who look."""
    found: Sightings | None = getattr(request.app.state, "sightings", None)
    if found is None:
        found = request.app.state.sightings = Sightings()
    return found

"""The workers: load, capabilities, status, timeline of their slots; draining."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Form, Request
from starlette.responses import Response

from tasklib.errors import WorkerNotFound
from tasklib.server.access import client_of
from tasklib.server.dashboard.screens import Operator, Serving, Viewer, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.server.dashboard.slots import WINDOW, DrawnAttempt, Sightings, drawn
from tasklib.store import fleet
from tasklib.store.fleet import WorkerInfo

router = screen_router()

_MOST = 100
"""Workers with a timeline on one page."""


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
    runs = await _sightings(request).look(services.client.database)
    now = datetime.now(UTC)
    shown = []
    for worker in sorted(live, key=lambda w: (not w.is_leader, w.started_at))[:_MOST]:
        pieces = drawn((r for r in runs if r.worker == worker.id), now, worker.capacity)
        rows = max((p.row for p in pieces), default=-1) + 1
        late = worker.seconds_since_heartbeat > 2 * services.config.heartbeat_interval_seconds
        shown.append(Shown(worker, pieces, max(rows, 1), late))
    return page(
        request,
        "workers.html",
        workers=shown,
        count=len(live),
        dead=[w for w in reversed(known) if w.status == "dead"][:_MOST],
        slots=sum(w.capacity for w in live),
        taken=sum(w.current_load for w in live),
        leader=await services.run(fleet.leader()),
        versions=Counter(w.version for w in live),
        minutes=int(WINDOW.total_seconds() // 60),
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


def _sightings(request: Request) -> Sightings:
    """One memory for all who look."""
    found: Sightings | None = getattr(request.app.state, "sightings", None)
    if found is None:
        found = request.app.state.sightings = Sightings()
    return found

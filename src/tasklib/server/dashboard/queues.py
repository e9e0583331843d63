"""Queues and task names: what waits, how quickly it is done, how much of it fails; pausing and resuming."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Form, Request
from starlette.responses import Response

from tasklib.client.search_terms import quoted
from tasklib.errors import InvalidOption
from tasklib.server.access import client_of
from tasklib.server.dashboard.keeping_up import RATE_MINUTES, queues_behind, unfit
from tasklib.server.dashboard.screens import Operator, Serving, Viewer, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.store import dashboard, fleet, levels, pauses, stats
from tasklib.store.behind import Behind
from tasklib.store.dashboard import NameBacklog
from tasklib.store.doctor import WaitingLane
from tasklib.store.levels import QueueLevel
from tasklib.store.pauses import Paused
from tasklib.store.stats import Point

router = screen_router()

_MINUTES = 60
_MOST = 200
"""Rows of one table: the busiest and the deepest."""
_TEXT = 20_000


@dataclass
class Line:
    """A queue or a name, with all that is known of it."""

    value: str
    depth: dict[str, int] = field(default_factory=dict)
    is_capped: bool = False
    oldest: float | None = None
    attempts: int = 0
    failures: int = 0
    run_p95: float | None = None
    wait_p95: float | None = None
    paused_at: datetime | None = None
    workers: int = 0
    """Live workers that serve it."""
    per_minute: float = 0.0
    """Tasks that were finished by the minute, lately."""
    behind: Behind | None = None
    unfit: list[WaitingLane] = field(default_factory=list)
    """Due tasks in it that no live worker takes."""

    @property
    def waiting(self) -> int:
        return sum(self.depth.values())


@router.get("/queues")
async def queues(request: Request, principal: Viewer, services: Serving) -> Response:
    run = services.run
    workers = [w for w in await run(fleet.workers()) if w.status == "active" and w.drain_requested_at is None]
    paused = await run(pauses.pauses())
    deep = await run(levels.levels())
    of_queues = _lines(deep, await run(stats.by_queue(_MINUTES, limit=_MOST)), paused, "queue")
    _rate(of_queues, await run(stats.by_queue(RATE_MINUTES, limit=_MOST)))
    waiting = await run(dashboard.backlog_by_name())
    of_names = _lines(waiting, await run(stats.by_name(_MINUTES, limit=_MOST)), paused, "name")
    _rate(of_names, await run(stats.by_name(RATE_MINUTES, limit=_MOST)))
    for worker in workers:
        for name in list(of_names) if worker.names is None else worker.names:
            of_names.setdefault(name, Line(name)).workers += 1
        for queue in of_queues if worker.queues is None else worker.queues:
            of_queues.setdefault(queue, Line(queue)).workers += 1
    for late in await queues_behind(run, deep, paused):
        of_queues.setdefault(late.value, Line(late.value)).behind = late
    for lane in await unfit(run, workers):
        for lines, value in ((of_queues, lane.queue), (of_names, lane.name)):
            if value in lines:
                lines[value].unfit.append(lane)
    return page(
        request,
        "queues.html",
        queues=_sorted(of_queues),
        names=_sorted(of_names),
        most=_MOST,
        minutes=_MINUTES,
        rate_minutes=RATE_MINUTES,
        failed=_failed,
        deepest_queue=max((line.waiting for line in of_queues.values()), default=0),
        deepest_name=max((line.waiting for line in of_names.values()), default=0),
    )


@router.post("/queues/pause")
async def pause(
    request: Request,
    principal: Operator,
    services: Serving,
    kind: Annotated[str, Form(pattern="^(queue|name)$")],
    value: Annotated[str, Form(min_length=1, max_length=_TEXT)],
) -> Response:
    client = client_of(principal, services)
    try:
        changed = await (client.pause(queue=value) if kind == "queue" else client.pause(name=value))
    except InvalidOption as e:
        return done(request, "/queues", _short(str(e)), "bad")
    said = "Paused" if changed else "Was paused already:"
    return done(request, "/queues", f"{said} {kind} {_short(value)}. Running tasks go on; no new ones start.")


@router.post("/queues/resume")
async def resume(
    request: Request,
    principal: Operator,
    services: Serving,
    kind: Annotated[str, Form(pattern="^(queue|name)$")],
    value: Annotated[str, Form(min_length=1, max_length=_TEXT)],
) -> Response:
    client = client_of(principal, services)
    try:
        changed = await (client.resume(queue=value) if kind == "queue" else client.resume(name=value))
    except InvalidOption as e:
        return done(request, "/queues", _short(str(e)), "bad")
    return done(request, "/queues", f"{'Resumed' if changed else 'Was not paused:'} {kind} {_short(value)}.")


def _rate(lines: dict[str, Line], points: list[Point]) -> None:
    for point in points:
        if point.label:
            lines.setdefault(point.label, Line(point.label)).per_minute = point.finished / RATE_MINUTES


def _lines(
    waiting: Iterable[QueueLevel | NameBacklog], points: list[Point], paused: Iterable[Paused], kind: str
) -> dict[str, Line]:
    found: dict[str, Line] = {}
    for part in waiting:
        value = part.queue if isinstance(part, QueueLevel) else part.name
        line = found.setdefault(value, Line(value))
        line.depth[part.level] = line.depth.get(part.level, 0) + part.depth
        line.is_capped |= part.is_capped
        line.oldest = max(line.oldest or 0.0, part.oldest_age_seconds)
    for point in points:
        line = found.setdefault(point.label, Line(point.label))
        line.attempts, line.failures = point.attempts, point.failures
        line.run_p95, line.wait_p95 = point.duration(0.95), point.wait(0.95)
    for pause_ in paused:
        if pause_.kind == kind:
            found.setdefault(pause_.value, Line(pause_.value)).paused_at = pause_.paused_at
    found.pop("", None)  # what concerns the fleet as a whole
    return found


def _sorted(lines: Mapping[str, Line]) -> list[Line]:
    """The most interesting ones if there are many: what is behind first, the others by name."""
    ranked = sorted(
        lines.values(), key=lambda x: (x.behind is None, x.paused_at is None, -x.waiting, -x.attempts, x.value)
    )
    return sorted(ranked[:_MOST], key=lambda x: (x.behind is None, x.value))


def _failed(kind: str, value: str) -> str:
    return "/tasks?" + urlencode({"q": f"{kind}:{quoted(value)} failed:<{_MINUTES}m"})


def _short(value: str) -> str:
    return value if len(value) <= 80 else value[:79] + "…"

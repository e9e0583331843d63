"""The page of a queue, and of a task name: is it keeping up, since when not, how long do its tasks take, what fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import Response

from tasklib.server.dashboard import chart_data
from tasklib.server.dashboard.chart_data import PERIODS, ChartQuery, Subject
from tasklib.server.dashboard.charts import Chart, draw
from tasklib.server.dashboard.keeping_up import name_behind, queues_behind, rates, unfit
from tasklib.server.dashboard.screens import Serving, Viewer, screen_router
from tasklib.server.dashboard.shell import page
from tasklib.server.services import Services
from tasklib.store import backpressure, dashboard, fleet, levels, limits, pauses, stats
from tasklib.store.behind import Behind
from tasklib.store.doctor import WaitingLane
from tasklib.store.fleet import WorkerInfo
from tasklib.store.limits import LimitInfo
from tasklib.store.stats import Point

router = screen_router()

_MOST = 50
_SHOWN = ("arrivals", "oldest", "waiting", "outcomes", "run", "wait")
_OF_WORKERS = ("outcomes", "failures", "run", "wait")


@dataclass(frozen=True, slots=True)
class Standing:
    """How much waits now."""

    depth: int
    is_capped: bool
    oldest: float | None
    behind: Behind | None


@router.get("/queues/{queue:path}")
async def queue(
    request: Request, principal: Viewer, services: Serving, queue: str, period: str = "1h", compare: str = "1"
) -> Response:
    query = ChartQuery("arrivals", period, compare=compare == "1", subject=Subject(queue=queue)).known()
    run = services.run
    paused = await run(pauses.pauses())
    waiting = [level for level in await run(levels.levels()) if level.queue == queue]
    late = await queues_behind(run, waiting, paused, only=queue)
    workers = [w for w in await _live(services) if w.queues is None or queue in w.queues]
    return await _show(
        request, services, query, "queue", queue,
        Standing(
            sum(level.depth for level in waiting),
            any(level.is_capped or level.is_partial for level in waiting),
            max((level.oldest_age_seconds for level in waiting), default=None),
            late[0] if late else None,
        ),
        workers,
        parts=await run(stats.by_name(query.minutes, queue=queue, limit=_MOST)),
        limits=[x for x in await run(limits.limits()) if x.name in ("queue", f"queue:{queue}")],
        bounds=next((b for b in await run(backpressure.queue_bounds()) if b.queue == queue), None),
        paused_at=next((p.paused_at for p in paused if p.kind == "queue" and p.value == queue), None),
        unfit=[lane for lane in await unfit(run, workers) if lane.queue == queue],
    )  # fmt: skip


@router.get("/names/{name:path}")
async def name(
    request: Request, principal: Viewer, services: Serving, name: str, period: str = "1h", compare: str = "1"
) -> Response:
    query = ChartQuery("arrivals", period, compare=compare == "1", subject=Subject(name=name)).known()
    run = services.run
    paused = await run(pauses.pauses())
    waiting = [found for found in await run(dashboard.backlog_by_name()) if found.name == name]
    oldest = max((found.oldest_age_seconds for found in waiting), default=None)
    paused_at = next((p.paused_at for p in paused if p.kind == "name" and p.value == name), None)
    workers = [w for w in await _live(services) if w.knows(name)]
    used = {f"name:{name}", *await run(dashboard.declared_limits(name))}
    return await _show(
        request, services, query, "name", name,
        Standing(
            sum(found.depth for found in waiting),
            any(found.is_capped for found in waiting),
            oldest,
            None if paused_at else await name_behind(run, name, oldest),
        ),
        workers,
        parts=await run(stats.by_queue(query.minutes, name=name, limit=_MOST)),
        limits=[x for x in await run(limits.limits()) if x.name in used],
        bounds=next((b for b in await run(backpressure.name_bounds()) if b.name == name), None),
        paused_at=paused_at,
        unfit=[lane for lane in await unfit(run, workers) if lane.name == name],
    )  # fmt: skip


async def _show(
    request: Request,
    services: Services,
    query: ChartQuery,
    kind: str,
    value: str,
    standing: Standing,
    workers: Sequence[WorkerInfo],
    *,
    parts: list[Point],
    limits: Sequence[LimitInfo],
    unfit: Sequence[WaitingLane],
    **more: Any,
) -> Response:
    run, s = services.run, query.subject
    now, before = await chart_data.points(run, query)
    return page(
        request,
        "subject.html",
        kind=kind,
        value=value,
        query=query,
        periods=[(key, key) for key in PERIODS],
        standing=standing,
        rates=rates(await run(stats.series(15, 60, name=s.name, queue=s.queue))),
        whole=Point([t for p in now for t in p.stats]),
        charts=await subject_charts(services, query, now, before, _SHOWN),
        workers=[w for w in workers if w.status == "active" and w.drain_requested_at is None],
        parts=[p for p in parts if p.label and p.stats],
        limits=limits,
        unfit=unfit,
        limits_page=_limits_page(request),
        search=lambda *terms: "/tasks?" + urlencode({"q": " ".join([*s.terms(), *terms])}),
        **more,
    )


async def worker_charts(services: Services, query: ChartQuery) -> tuple[list[Chart], Point]:
    """The charts of a worker's page, and the period as a whole."""
    now, before = await chart_data.points(services.run, query)
    return await subject_charts(services, query, now, before, _OF_WORKERS), Point([t for p in now for t in p.stats])


async def subject_charts(
    services: Services, query: ChartQuery, now: list[Point], before: list[Point], shown: Sequence[str]
) -> list[Chart]:
    """The charts of several measures, from the same points."""
    deploys = await services.run(fleet.deploys())
    deep = await chart_data.depths(services.run, query) if "waiting" in shown else ([], [])
    found = []
    for measure in shown:
        one = replace(query, of=measure)
        if measure in ("waiting", "oldest"):
            data = chart_data.of_depths(one, *deep)
        else:
            data = chart_data.of_points(one, now, before)
        found.append(draw(data, deploys, one.address()))
    return found


def _limits_page(request: Request) -> Callable[[str], str] | None:
    """Where a limit has its page, if this server has one."""
    if "/limits/show" not in request.app.state.screens:
        return None
    return lambda name: "/limits/show?" + urlencode({"name": name})


async def _live(services: Services) -> list[WorkerInfo]:
    return [w for w in await services.run(fleet.workers()) if w.status != "dead"]

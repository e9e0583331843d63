"""`/metrics` for Prometheus. A scrape costs a few bounded queries, whatever the table holds."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from tasklib.metrics import exposition, families
from tasklib.metrics.families import Reading
from tasklib.server.access import Principal, Role, allow, services
from tasklib.server.problems import Problem
from tasklib.server.services import Services
from tasklib.store import breakers, levels, limits, stats

_RECENT_MINUTES = 60

router = APIRouter(tags=["metrics"])


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def metrics(
    services: Annotated[Services, Depends(services)],
    principal: Annotated[Principal, Depends(allow(Role.VIEWER))],
) -> Response:
    """Text in Prometheus' format."""
    if not services.settings.metrics:
        raise Problem(404, "not_found", "There is nothing here", "Metrics are switched off: TASKLIB_SERVER_METRICS.")
    found = families.of_server(await read(services), services.settings.max_metric_queues)
    return Response(exposition.text(found), media_type=exposition.CONTENT_TYPE)


async def read(services: Services) -> Reading:
    """All that a scrape needs."""
    return Reading(
        await services.run(stats.totals()),
        await services.run(levels.levels()),
        await services.run(levels.state_counts()),
        await services.run(levels.fleet_figures()),
        await services.run(stats.by_queue(_RECENT_MINUTES)),
        await services.run(limits.limits()),
        await services.run(breakers.breakers()),
    )

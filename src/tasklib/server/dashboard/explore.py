"""One chart with all that can be chosen, its table, and the same as CSV and JSON."""

from __future__ import annotations

import csv
import io
from datetime import UTC
from typing import Any

from fastapi import Request
from starlette.responses import JSONResponse, Response

from tasklib.server.dashboard.chart_data import GROUPS, MEASURES, PERIODS, SHARES, ChartQuery, Subject, load
from tasklib.server.dashboard.charts import ChartData, draw
from tasklib.server.dashboard.screens import Serving, Viewer, screen_router
from tasklib.server.dashboard.shell import page
from tasklib.store import fleet

router = screen_router()

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def asked(
    of: str = "outcomes",
    period: str = "1h",
    by: str = "",
    share: str = "p95",
    compare: str = "1",
    queue: str = "",
    name: str = "",
    worker: str = "",
) -> ChartQuery:
    """The chart that an address asks for."""
    subject = Subject(queue or None, name or None, worker or None)
    return ChartQuery(of, period, by, share, compare == "1", subject).known()


@router.get("/charts")
async def charts(request: Request, principal: Viewer, services: Serving) -> Response:
    query = asked(**_given(request))
    data = await load(services.run, query)
    return page(
        request,
        "charts.html",
        query=query,
        chart=draw(data, await services.run(fleet.deploys())),
        periods=[(key, key) for key in PERIODS],
        measures=MEASURES,
        groups=GROUPS,
        shares=SHARES,
        file=query.address().partition("?")[2],
    )


@router.get("/charts/data.csv")
async def as_csv(request: Request, principal: Viewer, services: Serving) -> Response:
    data = await load(services.run, asked(**_given(request)))
    out = io.StringIO()
    writer = csv.writer(out)
    titles = [_plain(title) for title in data.series.values()]
    writer.writerow(["start", *titles, *([data.before_title] if data.before else [])])
    for at, values, before in data.rows():
        writer.writerow([at.astimezone(UTC).isoformat(), *values, *([before] if data.before else [])])
    return Response(out.getvalue(), media_type="text/csv", headers=_as_file(data, "csv"))


@router.get("/charts/data.json")
async def as_json(request: Request, principal: Viewer, services: Serving) -> Response:
    data = await load(services.run, asked(**_given(request)))
    steps: list[dict[str, Any]] = [
        {
            "start": at.astimezone(UTC).isoformat(),
            "values": dict(zip(data.series.values(), values, strict=True)),
            **({"before": before} if data.before else {}),
        }
        for at, values, before in data.rows()
    ]
    unit = "seconds" if data.is_time else "count"
    return JSONResponse(
        {"title": data.title, "unit": unit, "step_seconds": data.step_seconds, "steps": steps},
        headers=_as_file(data, "json"),
    )


def _given(request: Request) -> dict[str, str]:
    """What is asked for; an address with anything else in it works as well."""
    known = ("of", "period", "by", "share", "compare", "queue", "name", "worker")
    return {key: request.query_params[key][:20_000] for key in known if key in request.query_params}


def _plain(text: str) -> str:
    """A name that a spreadsheet would take for a formula is text."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _as_file(data: ChartData, kind: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="tasklib-{data.of}.{kind}"', "Cache-Control": "no-store"}

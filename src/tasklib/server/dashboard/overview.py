"""The first screen: how much was done, how it went, what waits, and who works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fastapi import Request
from starlette.responses import Response

from tasklib.server.dashboard import charts
from tasklib.server.dashboard.charts import Chart
from tasklib.server.dashboard.filters import compact, seconds
from tasklib.server.dashboard.first_run import first_run
from tasklib.server.dashboard.screens import Serving, Viewer, screen_router
from tasklib.server.dashboard.shell import page
from tasklib.server.dashboard.troubles import findings
from tasklib.store import dashboard, fleet, levels, stats
from tasklib.store.levels import Depth
from tasklib.store.stats import Point

router = screen_router()

RANGES = {"15m": (15, 60), "1h": (60, 60), "6h": (360, 600), "24h": (1440, 1800)}
"""Minutes shown, and seconds of a step: data older than 3 hours has a resolution of ten minutes."""
OUTCOMES = {"completed": "Completed", "failed": "Failed, to be retried", "dead_letter": "Dead letter"}
PERCENTILES = {"p50": "p50", "p95": "p95", "p99": "p99"}
LEVELS = {"high": "High", "medium": "Medium", "low": "Low"}
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_FAILURES_SHOWN, _WORKERS_SHOWN = 8, 8


@dataclass(frozen=True, slots=True)
class Summary:
    """The range as a whole."""

    completed: int
    failures: int
    attempts: int
    dead_letters: int
    per_second: float
    run_p50: float | None
    run_p95: float | None
    wait_p95: float | None


@router.get("/")
async def overview(request: Request, principal: Viewer, services: Serving, range: str = "1h") -> Response:
    chosen = range if range in RANGES else "1h"
    minutes, step = RANGES[chosen]
    points = await services.run(stats.series(minutes, step))
    depths = await services.run(levels.depth_series(minutes, step))
    waiting = await services.run(levels.levels())
    workers = [w for w in await services.run(fleet.workers()) if w.status != "dead"]
    failures = await services.run(dashboard.recent_failures(_FAILURES_SHOWN))
    return page(
        request,
        "overview.html",
        range=chosen,
        ranges=[(key, key) for key in RANGES],
        summary=_summary(points, minutes * 60),
        charts=_charts(points, depths, step),
        waiting=sum(level.depth for level in waiting),
        waiting_is_capped=any(level.is_capped or level.is_partial for level in waiting),
        waiting_by_level={name: sum(x.depth for x in waiting if x.level == name) for name in LEVELS},
        levels=LEVELS,
        oldest=max((level.oldest_age_seconds for level in waiting), default=None),
        workers=sorted(workers, key=lambda w: (not w.is_leader, -w.current_load, w.id))[:_WORKERS_SHOWN],
        worker_count=len(workers),
        slots=sum(w.capacity for w in workers),
        taken=sum(w.current_load for w in workers),
        leader=await services.run(fleet.leader()),
        failures=services.redaction.errors(failures),
        findings=await findings(request, services),
        first_run=None if workers else await first_run(services),
    )


def _summary(points: Sequence[Point], span: float) -> Summary:
    whole = Point([t for p in points for t in p.stats])
    return Summary(
        whole.of("completed"),
        whole.failures,
        whole.attempts,
        whole.of("dead_letter"),
        whole.of("completed") / span,
        whole.duration(0.5),
        whole.duration(0.95),
        whole.wait(0.95),
    )


def _charts(points: Sequence[Point], depths: Sequence[Depth], step: int) -> list[Chart]:
    timed = [(_start(p), p) for p in points]
    each = f"per {step // 60} min" if step > 60 else "per minute"
    return [
        charts.bars(
            "Throughput", [(at, {o: float(p.of(o)) for o in OUTCOMES}) for at, p in timed], OUTCOMES, compact, each
        ),
        charts.bars(
            "Waiting by level",
            [(d.moment, {name: float(n) for name, n in d.by_level.items()}) for d in depths],
            LEVELS,
            compact,
            "sampled by the leader",
        ),
        charts.lines(
            "Run time",
            [(at, {name: p.duration(share) for name, share in _SHARES.items()}) for at, p in timed],
            PERCENTILES,
            seconds,
        ),
        charts.lines(
            "Wait before start",
            [(at, {name: p.wait(share) for name, share in _SHARES.items()}) for at, p in timed],
            PERCENTILES,
            seconds,
        ),
    ]


def _start(point: Point) -> datetime:
    assert point.start is not None  # a series has them
    return point.start

"""The first screen: how much was done, how it went, what waits, and who works."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastapi import Request
from starlette.responses import Response

from tasklib.server.dashboard import chart_data
from tasklib.server.dashboard.chart_data import LEVELS, PERIODS, ChartQuery
from tasklib.server.dashboard.first_run import first_run
from tasklib.server.dashboard.keeping_up import RATE_MINUTES, queues_behind, rates
from tasklib.server.dashboard.screens import Serving, Viewer, screen_router
from tasklib.server.dashboard.shell import page
from tasklib.server.dashboard.subjects import subject_charts
from tasklib.server.dashboard.troubles import findings
from tasklib.store import dashboard, fleet, levels, pauses, stats
from tasklib.store.dashboard import RecentFailure
from tasklib.store.stats import Point

router = screen_router()

_FAILURES_READ, _CAUSES_SHOWN, _WORKERS_SHOWN = 50, 8, 8
_SHOWN = ("outcomes", "waiting", "run", "wait")


@dataclass(frozen=True, slots=True)
class Summary:
    """The range as a whole."""

    completed: int
    failures: int
    attempts: int
    dead_letters: int
    per_minute: float
    """Finished by the minute, lately."""
    run_p50: float | None
    run_p95: float | None
    wait_p95: float | None


@router.get("/")
async def overview(
    request: Request, principal: Viewer, services: Serving, range: str = "1h", compare: str = "0"
) -> Response:
    query = ChartQuery("outcomes", range, compare=compare == "1").known()
    points, before = await chart_data.points(services.run, query)
    paused = await services.run(pauses.pauses())
    waiting = await services.run(levels.levels())
    workers = [w for w in await services.run(fleet.workers()) if w.status != "dead"]
    failures = await services.run(dashboard.recent_failures(_FAILURES_READ))
    summary = _summary(points, await services.run(stats.series(RATE_MINUTES + 1, 60)))
    is_quiet = not (summary.attempts or waiting or failures)
    return page(
        request,
        "overview.html",
        range=query.period,
        query=query,
        ranges=[(key, key) for key in PERIODS],
        summary=summary,
        behind=await queues_behind(services.run, waiting, paused),
        paused=paused,
        charts=await subject_charts(services, query, points, before, _SHOWN),
        waiting=sum(level.depth for level in waiting),
        waiting_is_capped=any(level.is_capped or level.is_partial for level in waiting),
        waiting_by_level={name: sum(x.depth for x in waiting if x.level == name) for name in LEVELS},
        levels=LEVELS,
        oldest=max((level.oldest_age_seconds for level in waiting), default=None),
        workers=sorted(workers, key=lambda w: (not w.is_leader, -w.current_load, w.id))[:_WORKERS_SHOWN],
        worker_count=len(workers),
        slots=sum(w.capacity for w in workers),
        taken=sum(w.current_load for w in workers),
        leader=(leader := await services.run(fleet.leader())),
        leader_works=any(w.id == leader for w in workers),
        failures=_by_cause(services.redaction.errors(failures))[:_CAUSES_SHOWN],
        failures_read=len(failures),
        findings=await findings(request, services),
        first_run=await first_run(services, workers) if is_quiet else None,
    )


def _by_cause(failures: Iterable[RecentFailure]) -> list[tuple[RecentFailure, int]]:
    """The latest of each cause, and how many it has."""
    found: dict[str, list[RecentFailure]] = {}
    for failure in failures:
        found.setdefault(failure.fingerprint, []).append(failure)
    return [(some[0], len(some)) for some in found.values()]


def _summary(points: Sequence[Point], lately: list[Point]) -> Summary:
    whole = Point([t for p in points for t in p.stats])
    return Summary(
        whole.of("completed"),
        whole.failures,
        whole.attempts,
        whole.of("dead_letter"),
        rates(lately).finished,
        whole.duration(0.5),
        whole.duration(0.95),
        whole.wait(0.95),
    )

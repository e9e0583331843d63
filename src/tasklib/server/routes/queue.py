"""The queue in figures. They cost the same whatever the table holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from fastapi import APIRouter

from tasklib.server.fleet_response_models import DepthAnswer, FleetAnswer, StatsAnswer, ThroughputAnswer
from tasklib.server.routing import Given, Viewer
from tasklib.store import backlog, fleet, stats
from tasklib.store.backlog import Backlog
from tasklib.store.fleet import WorkerInfo
from tasklib.store.stats import Point

router = APIRouter(prefix="/api/v1/queue", tags=["queue"])

LEVELS = ("high", "medium", "low")


@router.get("/stats", operation_id="get_stats", summary="The queue in figures")
async def get_stats(principal: Viewer, given: Given) -> StatsAnswer:
    """Due tasks by level and by queue, the workers, and the attempts that ended in the last minute.

    Counts end at 2,000 for each queue and level; `is_capped` says so. Throughput is counted by the minute, as workers
    tell it every few seconds: of the minute before, the part counts that is not yet 60 seconds ago.
    """
    waiting = await given.run(backlog.backlog())
    running = await given.run(backlog.running())
    workers = await given.run(fleet.workers())
    minutes = await given.run(stats.series(minutes=1, step_seconds=60))
    queues = sorted({b.queue for b in waiting})
    return StatsAnswer(
        queues=_by_level(waiting),
        by_queue={queue: _by_level([b for b in waiting if b.queue == queue]) for queue in queues},
        running=running,
        workers=_fleet(workers),
        throughput=_throughput(minutes, datetime.now(UTC)),
    )


def _by_level(waiting: Sequence[Backlog]) -> dict[str, DepthAnswer]:
    return {level: _together([b for b in waiting if b.level == level]) for level in LEVELS}


def _together(waiting: Sequence[Backlog]) -> DepthAnswer:
    return DepthAnswer(
        depth=sum(b.depth for b in waiting),
        is_capped=any(b.is_capped for b in waiting),
        oldest_age_seconds=max((b.oldest_age_seconds for b in waiting), default=None),
    )


def _fleet(workers: Sequence[WorkerInfo]) -> FleetAnswer:
    live = [w for w in workers if w.status != "dead"]
    return FleetAnswer(
        active=sum(w.status == "active" for w in workers),
        draining=sum(w.status == "draining" for w in workers),
        dead=len(workers) - len(live),
        total_capacity=sum(w.capacity for w in live),
        used_capacity=sum(w.current_load for w in live),
    )


def _throughput(minutes: Sequence[Point], now: datetime) -> ThroughputAnswer:
    before, current = minutes[-2:]
    elapsed = (now - current.start).total_seconds() / 60 if current.start else 1.0
    share = min(1.0, max(0.0, 1 - elapsed))
    return ThroughputAnswer(
        completed_last_minute=current.of("completed") + round(share * before.of("completed")),
        failed_last_minute=current.failures + round(share * before.failures),
    )

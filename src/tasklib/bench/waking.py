"""W5 and W12: how soon an idle worker begins a task."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import nullcontext
from uuid import UUID

from tasklib.bench.crew import crew_of
from tasklib.bench.ground import SCHEMA
from tasklib.bench.rounds import Round, Sample
from tasklib.bench.serving import serving
from tasklib.bench.tasks import ping

WARM_UP = 5
PAUSE_SECONDS = (0.03, 0.07)
"""Between two tasks; random, so that they don't keep in step with anything."""

_BEGAN = f"SELECT id, (result ->> 'value')::float8 FROM {SCHEMA}.tasks"


def picked_up(round_: Round) -> Sample:
    """W5: milliseconds from the return of `submit_task` to the first line of the task, the median and the p99."""
    return round_.once("W5", lambda: _picked_up(round_, "W5"))


def picked_up_over_http(round_: Round) -> Sample:
    """W12, against W5: from the call of `submit_task`, as its return and the task's beginning may be one moment."""
    plain, remote = round_.in_turn(lambda: picked_up(round_), lambda: _picked_up(round_, "W12", through_server=True))
    return Sample(remote.details["from_call_p50_ms"], plain.details["from_call_p50_ms"], remote.details)


def _picked_up(round_: Round, workload: str, *, through_server: bool = False) -> Sample:
    ground, size = round_.ground, round_.plan.size(workload)
    ground.fresh()
    with (
        serving(ground) if through_server else nullcontext() as url,
        crew_of(ground, 1, concurrency=round_.plan.concurrency, server=url) as crew,
    ):
        submitted = []
        for number in range(WARM_UP + size):
            called = time.monotonic()
            id_ = ground.client.submit_task(ping, number=number)
            submitted.append((id_, called, time.monotonic()))
            time.sleep(random.uniform(*PAUSE_SECONDS))
        ground.await_all([id_ for id_, _, _ in submitted], crew.look)
    began: dict[UUID, float] = dict(ground.db.execute(_BEGAN.encode()).fetchall())
    after_return = [1000 * (began[id_] - returned) for id_, _, returned in submitted[WARM_UP:]]
    after_call = [1000 * (began[id_] - called) for id_, called, _ in submitted[WARM_UP:]]
    return Sample(
        percentile(after_return, 50),
        details={
            "p50_ms": percentile(after_return, 50),
            "p99_ms": percentile(after_return, 99),
            "from_call_p50_ms": percentile(after_call, 50),
            "from_call_p99_ms": percentile(after_call, 99),
        },
    )


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many per cent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, percent * len(ordered) // 100)]

"""W5 and W12: how soon an idle worker begins a task."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import nullcontext
from uuid import UUID

from tasklib.bench.rounds import Round, Sample
from tasklib.bench.schema import SCHEMA
from tasklib.bench.serving import serving
from tasklib.bench.tasks import ping
from tasklib.bench.workers import start_workers

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
    schema, size = round_.schema, round_.plan.size(workload)
    schema.fresh()
    with (
        serving(schema) if through_server else nullcontext() as url,
        start_workers(schema, 1, concurrency=round_.plan.concurrency, server=url) as workers_running,
    ):
        submitted = []
        for number in range(WARM_UP + size):
            called = time.monotonic()
            id_ = schema.client.submit_task(ping, number=number)
            submitted.append((id_, called, time.monotonic()))
            time.sleep(random.uniform(*PAUSE_SECONDS))
        schema.await_all([id_ for id_, _, _ in submitted], workers_running.look)
    began: dict[UUID, float] = dict(schema.db.execute(_BEGAN.encode()).fetchall())
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

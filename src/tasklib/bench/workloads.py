"""The twelve workloads, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tasklib.bench import draining, submitting, waking
from tasklib.bench.rounds import Round, Sample

TASKS_PER_SECOND, MILLISECONDS, CPU_SECONDS = "tasks/s", "ms", "CPU s"


@dataclass(frozen=True)
class Workload:
    """Something that is measured."""

    id: str
    name: str
    measure: Callable[[Round], Sample]
    unit: str = TASKS_PER_SECOND
    compared_with: str | None = None
    comes_last: bool = False
    """It takes its figures from another workload of the round, which must keep its own place in the order."""


WORKLOADS = {
    workload.id: workload
    for workload in (
        Workload("W1", "submit one by one", submitting.one_by_one, compared_with="a bare INSERT"),
        Workload("W2", "submit_many", submitting.many, compared_with="raw COPY"),
        Workload("W3", "drain, one worker", draining.one_worker),
        Workload("W4", "drain, two workers", draining.two_workers, compared_with="W3"),
        Workload("W5", "pick-up by an idle worker", waking.picked_up, MILLISECONDS),
        Workload("W6", "drain, sync functions in threads", draining.in_threads),
        Workload("W7", "drain beside finished and future tasks", draining.beside_many, compared_with="W3"),
        Workload("W8", "drain under a held snapshot", draining.under_snapshot, compared_with="W3"),
        Workload("W9", "CPU time of 10,000 tasks", draining.cpu_time, CPU_SECONDS, comes_last=True),
        Workload(
            "W10", "eight producers, workers busy", submitting.by_eight_producers, compared_with="no notification"
        ),
        Workload("W11", "drain, one worker over HTTP", draining.over_http, compared_with="W3"),
        Workload(
            "W12", "pick-up over HTTP, from the call", waking.picked_up_over_http, MILLISECONDS, compared_with="W5"
        ),
    )
}

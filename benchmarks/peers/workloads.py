"""W1 to W10: what is done, and what is timed. Each function takes a stage and returns figures for the record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.peers.adapters.marks import LATENCY, WARM_UPS
from benchmarks.peers.drain import Counts, drain
from benchmarks.peers.stage import History, MeasurementFailed, Stage
from tasklib.bench.plan import FULL_FINISHED, FULL_FUTURE
from tasklib.bench.producers import PRODUCERS
from tasklib.bench.waking import percentile

Figures = dict[str, Any]

FULL_HISTORY = History(FULL_FINISHED, FULL_FUTURE)


@dataclass(frozen=True)
class Scale:
    """How large a run is. `--quick` is for trying it out."""

    history: History = FULL_HISTORY
    divisor: int = 1
    most_tasks: int = 10_000_000
    fixed: int | None = None
    pings: int = 120
    warm_up_pings: int = 20
    ping_gap: float = 0.05
    producers: int = PRODUCERS
    timeout: float = 180.0

    def size(self, stage: Stage, workload: str) -> int:
        """How many tasks, but never so few that a batch is all there is."""
        if self.fixed:
            return self.fixed
        size = stage.system.size(workload)
        return min(size, self.most_tasks, max(size // self.divisor, 200))


QUICK = Scale(History(20_000, 10_000), divisor=20, most_tasks=10_000, pings=40, warm_up_pings=5)


def submit_singly(stage: Stage, scale: Scale) -> Figures:
    """W1: one producer, no worker."""
    return _submit(stage, scale.size(stage, "W1"), many=False)


def submit_many(stage: Stage, scale: Scale) -> Figures:
    """W2: the quickest documented way to submit many."""
    return _submit(stage, scale.size(stage, "W2"), many=True)


def _submit(stage: Stage, count: int, *, many: bool) -> Figures:
    stage.make_fresh()
    seconds = stage.submit("noop", count, many=many)
    stored = stage.count_unfinished()
    ok = stored in (None, count + (0 if many else WARM_UPS))
    return {"n": count, "seconds": seconds, "tasks_s": count / seconds, "stored": stored, "ok": ok}


def drain_one(stage: Stage, scale: Scale) -> Figures:
    """W3, and W9 with it: async no-ops, submitted beforehand, one worker process."""
    return drain(stage, scale.size(stage, "W3"), timeout=scale.timeout)


def drain_two(stage: Stage, scale: Scale) -> Figures:
    """W4: the same with two worker processes."""
    return drain(stage, scale.size(stage, "W4"), workers=2, timeout=scale.timeout)


def drain_sync(stage: Stage, scale: Scale) -> Figures:
    """W6: synchronous no-ops, in the threads of one worker process."""
    return drain(stage, scale.size(stage, "W6"), kind="sync_noop", timeout=scale.timeout)


def drain_beside_history(stage: Stage, scale: Scale) -> Figures:
    """W7: W3 in tables that hold finished rows, and future ones at the highest priority."""
    return drain(stage, scale.size(stage, "W7"), history=scale.history, timeout=scale.timeout)


def drain_under_snapshot(stage: Stage, scale: Scale) -> Figures:
    """W8: W3 while another session holds a snapshot, so that no dead row can be cleaned up."""
    return drain(stage, scale.size(stage, "W8"), snapshot=True, timeout=scale.timeout)


def pick_up(stage: Stage, scale: Scale) -> Figures:
    """W5: an idle worker, one ping at a time; how long until its body begins."""
    stage.make_fresh()
    total = scale.warm_up_pings + scale.pings
    with stage.workers():
        stage.ping(total, scale.ping_gap)
        pings = _await_pings(stage, total)[scale.warm_up_pings :]
    picked_up = [(called, returned, began) for called, returned, began in pings if began]
    if not picked_up:
        raise MeasurementFailed(f"no ping was picked up: {stage.log('worker.log')}")
    from_return = [(began - returned) * 1000 for _, returned, began in picked_up]
    from_call = [(began - called) * 1000 for called, _, began in picked_up]
    return {
        "n": scale.pings,
        "lost": len(pings) - len(picked_up),
        "p50": percentile(from_return, 50),
        "p99": percentile(from_return, 99),
        "max": max(from_return),
        "call_p50": percentile(from_call, 50),
        "call_p99": percentile(from_call, 99),
        "ok": len(picked_up) == len(pings),
    }


def _await_pings(stage: Stage, total: int) -> list[tuple[float, float, float]]:
    """All pings, as soon as the last has been picked up; those of a system that only polls take a moment."""
    deadline = time.monotonic() + 5.0
    while True:
        stored = (stage.lab.run_dir / "latency").read_bytes()
        pings = [LATENCY.unpack_from(stored, LATENCY.size * number) for number in range(total)]
        if all(began for _, _, began in pings) or time.monotonic() > deadline:
            return pings
        time.sleep(0.05)


def produce_while_busy(stage: Stage, scale: Scale) -> Figures:
    """W10: producers submit singly while a worker process has all its slots taken by naps."""
    count = scale.size(stage, "W10")
    stage.make_fresh()
    naps = 2 * stage.system.slots  # more than fit: a worker with a free slot would be asleep, not busy
    stage.submit("nap", naps, many=True)
    stage.settle()
    with stage.workers() as workers:
        counts = Counts(stage.lab.run_dir)
        deadline = time.monotonic() + 60
        while counts.total() < stage.system.slots:
            if time.monotonic() > deadline or workers[0].poll() is not None:
                raise MeasurementFailed(f"only {counts.total()} naps began: {stage.log('worker.log')}")
            time.sleep(0.05)
        seconds = stage.submit("noop", count, producers=scale.producers)
    stored = stage.count_unfinished()
    return {
        "n": count,
        "producers": scale.producers,
        "seconds": seconds,
        "tasks_s": count / seconds,
        "stored": stored,
        "ok": True,
    }


RUN: dict[str, Callable[[Stage, Scale], Figures]] = {
    "W1": submit_singly,
    "W2": submit_many,
    "W3": drain_one,
    "W4": drain_two,
    "W5": pick_up,
    "W6": drain_sync,
    "W7": drain_beside_history,
    "W8": drain_under_snapshot,
    "W10": produce_while_busy,
}
"""What each workload does."""


def measure(stage: Stage, workload: str, scale: Scale) -> Figures:
    """The figures of one run; a failure is a figure too."""
    try:
        return RUN[workload](stage, scale)
    except (MeasurementFailed, psycopg.Error, OSError, TimeoutError) as e:
        return {"ok": False, "error": f"{type(e).__name__}: {e}"[:2000]}

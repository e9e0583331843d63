"""Fleets of 1 to 1,000 nodes: rates, connections, latency and recovery, and which bound is met first.

The reference: servers of 16 cores like those that were measured, commits that are on disk after 1 ms, tasks of 100 ms,
workers with 50 slots of which seven tenths are in use.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from benchmarks.simulation.budget import (
    Design,
    Node,
    connections,
    idle_connections,
    most,
    needs,
    rescue_seconds,
    server_us,
    upkeep,
    workers_for,
)
from benchmarks.simulation.costs import Costs
from benchmarks.simulation.fleet import Plan, simulated
from tasklib.maintenance import batches

NODES = (1, 2, 4, 10, 100, 1000)
RATES = (1e5, 1e6, 1e7)
TASK_SECONDS, SLOTS = 0.1, 50
NODE = Node()
BATCH_OF_BEFORE = 500
AT_ONCE, LISTENING, SERVED = 100, 20, 2
"""As recommended: tasks in one submission, listening workers of a shard, shards of a worker."""
SIMULATED_SECONDS = 2.0
WORKERS = (1, 10, 100, 1000)
IDLE_RATE = 20.0


def predicted(costs: Costs) -> dict[str, Any]:
    """All tables of the page."""
    return {
        "node": asdict(NODE),
        "task_seconds": TASK_SECONDS,
        "slots": SLOTS,
        "nodes": [_shown(row) for row in (nodes(costs, number) for number in NODES)],
        "one_server": [_shown(one_server(costs, workers)) for workers in WORKERS],
        "first": [_shown(first(costs, rate)) for rate in RATES],
        "recovery": [_shown(recovery(costs, killed)) for killed in (1, 10, 50)],
        "rescue": [_shown(rescue(costs, lost)) for lost in (1000, 10_000, 100_000, 1_000_000)],
    }


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Printed, and rounded to three digits."""
    short = {name: _rounded(value) for name, value in row.items()}
    print(short, flush=True)
    return short


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.3g}")
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value


def plain(rate: float, shards: int) -> Design:
    """As it comes: every worker serves all shards and listens, tasks are submitted one by one."""
    return Design(rate, shards, workers_for(rate, SLOTS, TASK_SECONDS), SLOTS, producers=100, node=NODE)


def recommended(rate: float, shards: int) -> Design:
    """A worker serves a few shards, a few workers of each shard listen, and producers submit many at once."""
    served = min(shards, SERVED)
    return replace(
        plain(rate, shards), shards_per_worker=served, listening_per_shard=LISTENING, submitted_at_once=AT_ONCE
    )


def _most(make: Any, shards: int, costs: Costs) -> tuple[float, str]:
    """The highest rate, with as many workers as it takes there."""
    low, high, what = 0.0, 1e9, ""
    for _ in range(50):
        middle = (low + high) / 2
        scarcest = _scarcest(make(middle, shards), costs)
        if scarcest.share > 1:
            high, what = middle, scarcest.what
        else:
            low = middle
    return low, what


def _scarcest(design: Design, costs: Costs) -> Any:
    return needs(design, costs)[0]


def nodes(costs: Costs, shards: int) -> dict[str, Any]:
    """What so many servers carry, as it comes and as recommended."""
    as_it_comes, first_of_plain = _most(plain, shards, costs)
    as_recommended, first_of_recommended = _most(recommended, shards, costs)
    design = recommended(as_recommended, shards)
    out = simulated(_half_of(design), costs)
    return {
        "nodes": shards,
        "plain_tasks_s": as_it_comes,
        "plain_workers": plain(as_it_comes, shards).workers,
        "plain_first": first_of_plain,
        "tasks_s": as_recommended,
        "workers": design.workers,
        "first": first_of_recommended,
        "connections": connections(design),
        "server_us": server_us(design, costs),
        "wait_p50_ms": 1000 * out.wait(0.5),
        "wait_p99_ms": 1000 * out.wait(0.99),
    }


def _half_of(design: Design) -> Plan:
    """A few of its servers with their workers at half of its rate. All poll: the plan's producers submit one by one."""
    shards = min(design.shards, SERVED)
    return Plan(
        shards=shards,
        servers=shards,
        workers=max(1, round(design.workers * shards / design.shards)),
        shards_per_worker=shards,
        slots=design.slots,
        task_seconds=TASK_SECONDS,
        arrivals=design.rate_per_shard * shards / 2,
        cores=NODE.cores,
        flush_seconds=NODE.flush_seconds,
        listening=0,
        seconds=SIMULATED_SECONDS,
    )


def one_server(costs: Costs, workers: int) -> dict[str, Any]:
    """One server with so many workers of 10 slots, at a low rate: what waking costs. Simulated."""
    plan = Plan(
        workers=workers,
        task_seconds=TASK_SECONDS,
        arrivals=IDLE_RATE,
        cores=NODE.cores,
        flush_seconds=NODE.flush_seconds,
        seconds=30.0,
    )
    row: dict[str, Any] = {"workers": workers, "connections": idle_connections(workers)}
    for name, listening in (("all", None), ("some", LISTENING), ("none", 0)):
        out = simulated(replace(plan, listening=listening), costs)
        row[f"{name}_wait_p50_ms"] = 1000 * out.wait(0.5)
        row[f"{name}_wait_p99_ms"] = 1000 * out.wait(0.99)
        row[f"{name}_cores"] = out.server_seconds / plan.seconds
    design = Design(1.0, 1, workers, 10, producers=100, node=NODE)
    row["upkeep_cores"] = upkeep(design, costs)
    row["most_one_by_one"], row["most_one_by_one_first"] = most(design, costs)
    return row


def first(costs: Costs, rate: float) -> dict[str, Any]:
    """At this rate: how many servers it takes for their cores, and which bounds are met there."""
    shards = 1
    while _cores_alone(recommended(rate, shards), costs) > 1:
        shards += max(1, shards // 20)
    row: dict[str, Any] = {"rate": rate, "shards": shards, "workers": plain(rate, shards).workers}
    for name, make in (("plain", plain), ("recommended", recommended)):
        row[name] = [[need.what, need.share] for need in needs(make(rate, shards), costs)]
        row[f"{name}_connections"] = connections(make(rate, shards))
    row["wal_bytes_s"] = rate * costs.wal_bytes
    return row


def _cores_alone(design: Design, costs: Costs) -> float:
    return next(need.share for need in needs(design, costs) if need.what == "server cores")


def recovery(costs: Costs, killed: int) -> dict[str, Any]:
    """A server with 100 busy workers loses some, the leader among them. Simulated."""
    plan = Plan(
        workers=100,
        task_seconds=1.0,
        arrivals=400.0,
        cores=NODE.cores,
        flush_seconds=NODE.flush_seconds,
        killed=killed,
        killed_at=20.0,
        seconds=160.0,
    )
    out = simulated(plan, costs)
    return {"killed": killed, "of": plan.workers, "lost": out.lost, "seconds": out.recovered_after}


def rescue(costs: Costs, lost: int) -> dict[str, Any]:
    """What the leader computes to take back so many tasks: in the batches of before, and in growing ones."""
    growing = [batches.FIRST]
    while growing[-1] < batches.MOST:
        growing.append(min(2 * growing[-1], batches.MOST))
    return {
        "lost": lost,
        "equal_seconds": rescue_seconds(lost, costs, [BATCH_OF_BEFORE]),
        "growing_seconds": rescue_seconds(lost, costs, growing),
    }

"""The model beside the real thing on this machine: the same fleet, simulated and run.

Kinds of fleets, each over 1, 2 and 4 shards, which are schemas on one embedded PostgreSQL:

- sessions: 200 connections that claim, wait and settle in turns, by TaskLib's own statements;
- workers: one real worker that drains a backlog;
- sleepers: real workers that have little to do, woken by single submissions;

and eight producers that submit one by one, while a worker sleeps and while none does.

Rounds of all fleets alternate. What else the machine does makes the same statements take more CPU time, so a claim is
measured again after each run, and all costs are taken as many times longer as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, TypeAlias

from benchmarks.simulation.costs import Costs
from benchmarks.simulation.fleet import IDLE_CONNECTIONS, LEADER_CONNECTIONS, Plan, quantile, simulated
from benchmarks.simulation.place import SHARDS, Figures, Place, place
from benchmarks.simulation.producers import expected_of_producers
from benchmarks.simulation.real_runs import costs_of_sessions, run_sessions, run_sleepers, run_worker
from benchmarks.simulation.sessions import claiming, completing, sessions

ROUNDS = 1
SESSION_PLAN = Plan(
    workers=200,
    shards_per_worker=1,
    slots=10,
    task_seconds=1.0,
    seconds=6.0,
    cores=2,
    one_machine=True,
    in_turns=True,
    led=False,
)
DRAINED = 8_000
WORKER_PLAN = Plan(slots=100, cores=2, one_machine=True, seconds=20.0)
SLEEPER_PLAN = Plan(workers=12, arrivals=10.0, cores=2, one_machine=True, seconds=10.0)
COMPARED = ("tasks_s", "server_us", "worker_us", "connections", "tasks_per_claim", "claim_ms", "wait_ms")
NOTIFYING = "8 producers, a worker sleeps"
SILENT = "8 producers, none sleeps"


def checked(costs: Costs) -> dict[str, Any]:
    """Every fleet: measured, predicted, and the error of the prediction."""
    slower = []
    with place() as where:
        session_costs = costs_of_sessions(where, costs)
        fleets = _fleets(where)
        runs: dict[str, list[Figures]] = {name: [] for name in fleets}
        for _ in range(ROUNDS):
            for name, (run, _) in fleets.items():
                found = run()
                runs[name].append(found)
                slower.append(slowness(where, costs))
                print(name, {k: round(v, 1) for k, v in found.items()}, flush=True)
    factor = median(slower)
    costs = costs.times(factor)
    session_costs = replace(costs, worker_task=session_costs.worker_task)
    compared = {
        name: _compared(runs[name], expected(session_costs if "sessions" in name or "producers" in name else costs))
        for name, (_, expected) in fleets.items()
    }
    for name, figures in compared.items():
        print(name, figures)
    return {"rounds": ROUNDS, "slower": round(factor, 2), "fleets": compared, "worst": _worst(compared)}


Run: TypeAlias = tuple[Callable[[], Figures], Callable[[Costs], Figures]]
"""What runs a fleet, and what predicts the same figures."""


def _fleets(where: Place) -> dict[str, Run]:
    fleets: dict[str, Run] = {}
    for shards in SHARDS:
        plan = replace(SESSION_PLAN, shards=shards)
        plan = replace(plan, backlog=int(plan.workers * plan.slots * plan.seconds) // shards + 1000)
        fleets[f"{plan.workers} sessions, {shards} shards"] = (
            partial(run_sessions, where, plan),
            partial(expected_of, plan, connections=plan.workers),
        )
        drain = replace(WORKER_PLAN, shards=shards, backlog=DRAINED // shards)
        fleets[f"1 worker, {shards} shards"] = (partial(run_worker, where, drain), partial(expected_of, drain))
        sleepers = replace(SLEEPER_PLAN, shards=shards)
        fleets[f"{sleepers.workers} sleepers, {shards} shards"] = (
            partial(run_sleepers, where, sleepers),
            partial(expected_of, sleepers, connections=_idle(sleepers)),
        )
    for name, sleeps in ((NOTIFYING, True), (SILENT, False)):
        fleets[name] = (partial(where.producers, sleeps=sleeps), partial(expected_of_producers, sleeps=sleeps))
    return fleets


def slowness(where: Place, costs: Costs) -> float:
    """How many times longer a claim and its results take now than when the costs were measured."""
    where.fill(1, 400)
    with sessions(where.configs[0]) as [session]:
        took = []
        for _ in range(30):
            claimed, claim = session.timed(claiming("slowness", 10))
            took.append(claim.server + session.timed(completing(claimed, "slowness"))[1].server)
    return median(took[6:]) / (costs.claim.of(10) + costs.complete.of(10))


def _idle(plan: Plan) -> int:
    return plan.shards * (plan.workers * IDLE_CONNECTIONS + LEADER_CONNECTIONS + 1)  # the last is the producer's


def expected_of(plan: Plan, costs: Costs, *, connections: float = math.nan) -> Figures:
    """What the model says of such a run."""
    out = simulated(plan, costs)
    drains = bool(plan.backlog) and not plan.in_turns
    seconds = _drained_after(plan, costs) if drains else plan.seconds
    figures = {"server_us": 1e6 * out.server_seconds / max(1, out.completed), "connections": connections}
    if plan.backlog:
        figures["tasks_s"] = out.completed / seconds
        figures["claim_ms"] = 1000 * quantile(out.claim_seconds, 0.5)
        figures["tasks_per_claim"] = out.claimed / out.claims
    else:
        figures["wait_ms"] = 1000 * out.wait(0.5)
    return figures


def _drained_after(plan: Plan, costs: Costs) -> float:
    """When the last task of a backlog is done: by halving."""
    low, high = 0.0, plan.seconds
    for _ in range(9):
        middle = (low + high) / 2
        if simulated(replace(plan, seconds=middle), costs).completed < plan.backlog * plan.shards:
            low = middle
        else:
            high = middle
    return high


def _compared(runs: Sequence[Figures], expected: Figures) -> dict[str, Any]:
    """The median of the runs, the prediction, and how much larger the prediction is."""
    found = {}
    for name in COMPARED:
        if name in expected and name in runs[0] and not math.isnan(expected[name]):
            real = median(run[name] for run in runs)
            found[name] = {
                "measured": float(f"{real:.3g}"),
                "predicted": float(f"{expected[name]:.3g}"),
                "error": round(expected[name] / real - 1, 2) if real else None,
            }
    return found


def _worst(compared: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The largest error of each figure, in either direction."""
    errors: dict[str, list[float]] = {}
    for figures in compared.values():
        for name, figure in figures.items():
            if figure["error"] is not None:
                errors.setdefault(name, []).append(figure["error"])
    return {name: max(each, key=abs) for name, each in errors.items()}

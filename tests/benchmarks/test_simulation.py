"""The model of a fleet keeps its books, and agrees with closed forms where there are some."""

from __future__ import annotations

from dataclasses import fields, replace
from statistics import mean

import pytest

from benchmarks.simulation.budget import Design, connections, most, needs, rescue_seconds
from benchmarks.simulation.costs import Costs, Linear, fitted
from benchmarks.simulation.engine import Cores, Process, Signal, Simulation
from benchmarks.simulation.fleet import DEAD_AFTER_SECONDS, SWEEP_SECONDS, Plan, simulated
from benchmarks.simulation.server import ModelServer

FREE = Costs(**{f.name: Linear(0.0) if f.type == "Linear" else 0.0 for f in fields(Costs)})  # type: ignore[arg-type]
COSTS = replace(
    FREE,
    claim=Linear(3e-4, 8e-6),
    complete=Linear(2e-4, 6e-6),
    skip=7e-7,
    submit_one=1e-4,
    submit_many=6e-6,
    sleepers=Linear(0.0, 6e-7),
    listeners=Linear(2e-5, 2e-5),
    heartbeat=2e-4,
    election=6e-5,
    poll=1e-4,
    doze=1e-4,
    report=2e-4,
    cold=3e-4,
    bury=Linear(3e-4, 1e-7),
    snapshot=Linear(1e-3, 8e-7),
    fold=Linear(2e-3, 4e-6),
    rescue=Linear(8e-3, 3e-6),
    retain=3e-6,
    flush_seconds=1e-3,
    wal_bytes=1500.0,
    worker_task=Linear(3e-4, 1.4e-5),
    worker_idle=2e-3,
)
PLANS = [
    Plan(arrivals=50.0, workers=3, task_seconds=0.1, seconds=20.0),
    Plan(arrivals=200.0, workers=4, shards=4, servers=2, shards_per_worker=2, seconds=10.0),
    Plan(arrivals=100.0, workers=6, listening=2, task_seconds=0.02, seconds=10.0),
    Plan(backlog=5000, slots=100, seconds=2.0, cores=2, one_machine=True),
    Plan(backlog=400, workers=8, in_turns=True, task_seconds=0.5, seconds=3.0, led=False),
    Plan(arrivals=40.0, workers=10, task_seconds=0.5, killed=4, killed_at=10.0, seconds=150.0),
]


def booked(plan: Plan) -> tuple[int, int]:
    """Tasks that were submitted, and those that are somewhere."""
    out = simulated(plan, COSTS)
    return out.submitted, out.waiting + out.running + out.completed


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_no_task_is_lost_or_made_up(plan: Plan) -> None:
    submitted, found = booked(plan)
    assert submitted == found > 0


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_cores_are_never_used_more_than_they_are(plan: Plan) -> None:
    assert 0 < simulated(plan, COSTS).utilisation <= 1


def test_the_same_seed_gives_the_same_outcome_and_another_seed_another() -> None:
    assert simulated(PLANS[0], COSTS) == simulated(PLANS[0], COSTS)
    assert simulated(PLANS[0], COSTS) != simulated(replace(PLANS[0], seed=2), COSTS)


def test_a_server_of_one_core_makes_random_arrivals_wait_as_the_closed_form_says() -> None:
    """M/D/1: the mean wait is rho * service / (2 * (1 - rho))."""
    import random

    sim, rng, waits = Simulation(), random.Random(7), []
    desk, service, rho = Cores(sim, 1), 1.0, 0.6

    def customer() -> Process:
        came = sim.now
        yield from desk.take()
        waits.append(sim.now - came)
        yield service
        desk.give_back(service)

    def arrivals() -> Process:
        while True:
            yield rng.expovariate(rho / service)
            sim.start(customer())

    sim.start(arrivals())
    sim.run(200_000.0)
    assert mean(waits) == pytest.approx(rho * service / (2 * (1 - rho)), rel=0.03)
    assert desk.busy_seconds / 200_000 == pytest.approx(rho, rel=0.01)


def test_two_cores_do_twice_the_work_of_one() -> None:
    for number in (1, 2):
        sim = Simulation()
        cores = Cores(sim, number)
        for _ in range(10):
            sim.start(cores.use(1.0))
        sim.run(10.0 / number)
        assert cores.busy_seconds == pytest.approx(10.0)


def test_commits_share_a_flush_unless_they_notify() -> None:
    for notifies, flushes in ((False, 2), (True, 10)):
        sim = Simulation()
        server = ModelServer(sim, cores=8, flush_seconds=1e-3)
        for _ in range(10):
            sim.start(server.run(0.0, notifies=notifies))
        sim.run(1.0)
        assert server.log.flushes == flushes


def test_a_signal_that_does_not_ring_gives_up_after_its_time() -> None:
    sim, seen = Simulation(), []

    def waiting() -> Process:
        seen.append(((yield Signal(sim, 2.0)), sim.now))

    sim.start(waiting())
    sim.run(5.0)
    assert seen == [(False, 2.0)]


def test_with_statements_that_cost_nothing_slots_alone_bound_the_rate() -> None:
    plan = Plan(backlog=100_000, workers=5, slots=10, task_seconds=0.5, seconds=100.0, led=False)
    assert simulated(plan, FREE).tasks_s == pytest.approx(5 * 10 / 0.5, rel=0.01)


def test_a_full_server_does_as_many_tasks_as_its_core_has_time_for() -> None:
    costs = replace(FREE, claim=Linear(0.0, 1e-3), complete=Linear(0.0, 1e-3))
    plan = Plan(backlog=100_000, workers=20, slots=10, cores=1, seconds=50.0, led=False)
    out = simulated(plan, costs)
    assert out.tasks_s == pytest.approx(500, rel=0.01)
    assert out.utilisation == pytest.approx(1.0, abs=0.01)


def test_submissions_that_wake_a_sleeper_flush_one_by_one_and_others_together() -> None:
    plan = Plan(arrivals=4000.0, workers=200, slots=10, cores=64, flush_seconds=1e-3, seconds=3.0)
    costs = replace(FREE, flush_seconds=1e-3)
    rates = [simulated(replace(plan, listening=most), costs).submitted / plan.seconds for most in (None, 0)]
    assert 500 < rates[0] <= 1000, "a flush for each, and perhaps the end of one for claims before it"
    assert rates[1] == pytest.approx(4000, rel=0.05)


def test_tasks_of_lost_workers_wait_again_after_the_timeout_and_one_sweep() -> None:
    plan = PLANS[-1]
    out = simulated(plan, COSTS)
    assert out.lost > 0
    assert out.recovered_after is not None
    assert DEAD_AFTER_SECONDS < out.recovered_after < DEAD_AFTER_SECONDS + 1.2 * SWEEP_SECONDS + 1


def test_a_line_is_found_again_and_nothing_costs_less_than_nothing() -> None:
    line = Linear(3.0, 0.5)
    found = fitted([(x, line.of(x)) for x in (1, 10, 100)])
    assert (found.fixed, found.each) == (pytest.approx(3.0), pytest.approx(0.5))
    assert fitted([(1, 1.0), (2, 4.0)]).fixed == 0.0
    assert fitted([(1, 4.0), (2, 1.0)]).each == 0.0


def test_the_most_that_a_fleet_does_is_where_its_scarcest_thing_is_used_up() -> None:
    design = Design(rate=1.0, shards=4, workers=40)
    rate, what = most(design, COSTS)
    [scarcest, *_] = needs(replace(design, rate=rate), COSTS)
    assert scarcest.what == what
    assert scarcest.share == pytest.approx(1.0, abs=1e-3)


def test_connections_grow_with_the_workers_of_a_shard_and_not_with_the_shards_that_it_has_no_part_in() -> None:
    all_of_them = Design(rate=1.0, shards=100, workers=1000)
    some = replace(all_of_them, shards_per_worker=4)
    assert all_of_them.workers_per_shard == 1000
    assert some.workers_per_shard == 40
    assert connections(some) < connections(all_of_them) / 10


def test_a_rescue_in_growing_batches_takes_less_than_in_equal_ones() -> None:
    equal, growing = [500], [500, 1000, 2000, 4000, 8000]
    assert rescue_seconds(500, COSTS, equal) == rescue_seconds(500, COSTS, growing)
    assert rescue_seconds(100_000, COSTS, growing) < rescue_seconds(100_000, COSTS, equal) / 5

"""Eight producers that submit one task after the other: while a worker sleeps, their commits notify, one by one."""

from __future__ import annotations

import threading
import time

import psycopg

from benchmarks.simulation.costs import Costs
from benchmarks.simulation.engine import Process, Simulation
from benchmarks.simulation.measuring import submission
from benchmarks.simulation.server import ModelServer
from benchmarks.simulation.sessions import NAME, sessions
from tasklib import Config

PRODUCERS, SECONDS = 8, 5.0


def run_producers(config: Config, url: str, *, sleeps: bool) -> dict[str, float]:
    """Submissions per second, beside a worker that is known to sleep or beside none."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(
            f"INSERT INTO {config.schema}.worker_registrations (id, names, asleep, wake_channel) "  # type: ignore[arg-type]
            f"VALUES ('sleeper', ARRAY['{NAME}'], %s, 'tasklib_wake_check')",
            (sleeps,),
        )
        db.execute("CHECKPOINT")
    with sessions(config, PRODUCERS) as opened:
        counts = [0] * PRODUCERS
        end = time.monotonic() + SECONDS

        def produce(number: int) -> None:
            while time.monotonic() < end:
                opened[number].run(submission())
                counts[number] += 1

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(PRODUCERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {"tasks_s": sum(counts) / SECONDS}


def expected_of_producers(costs: Costs, *, sleeps: bool) -> dict[str, float]:
    """The same in the model. The producers compute on the server's cores, as much as a worker does for a statement."""
    sim = Simulation()
    server = ModelServer(sim, cores=2, flush_seconds=costs.flush_seconds)
    done = [0]

    def produce() -> Process:
        while True:
            yield from server.cores.use(costs.worker_task.fixed)
            cpu = costs.submit_one + (costs.sleepers.of(1) if sleeps else 0.0)
            yield from server.run(cpu, notifies=sleeps)
            done[0] += 1

    for _ in range(PRODUCERS):
        sim.start(produce())
    sim.run(SECONDS)
    return {"tasks_s": done[0] / SECONDS}

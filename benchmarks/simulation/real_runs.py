"""Real runs of the fleets that are simulated: sessions, a worker that drains, workers that sleep."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import TypeVar

import psycopg

from benchmarks.simulation.costs import Costs, Linear, fitted
from benchmarks.simulation.fleet import ELECTION_SECONDS, HEARTBEAT_SECONDS, REPORT_SECONDS, Plan
from benchmarks.simulation.measuring import counted
from benchmarks.simulation.place import Figures, Place
from benchmarks.simulation.sessions import NAME, TimedSession, claiming, completing
from benchmarks.simulation.workers import await_sleep, work
from tasklib import Client, Worker
from tasklib.db.query import Query
from tasklib.store import fleet as fleet_queries
from tasklib.store import stats

PER_PROCESS = 6
T = TypeVar("T")
# Sessions.


def costs_of_sessions(where: Place, costs: Costs) -> Costs:
    """The same costs with what a session takes of this process instead of what a worker takes."""
    points = []
    where.fill(1, 8000)
    session = TimedSession(where.configs[0])
    try:
        for count in (1, 10, 100):
            begun = time.process_time()
            for _ in range(30):
                session.run(completing(session.run(claiming("calibration", count)), "calibration"))
            points.append((count, (time.process_time() - begun) / 60))
    finally:
        session.close()
    line = fitted(points)
    return replace(costs, worker_task=Linear(line.fixed, 2 * line.each))


def run_sessions(where: Place, plan: Plan) -> Figures:
    where.fill(plan.shards, plan.backlog * plan.shards)
    for config in where.configs[: plan.shards]:
        with Client(config) as client:  # the sessions are candidates, as all workers but one
            client.database.run(fleet_queries.lead("another", 3600.0))
    members = [SessionMember(where, plan, number) for number in range(plan.workers)]
    begin = threading.Event()
    threads = [threading.Thread(target=member.work, args=(begin,)) for member in members]
    for thread in threads:
        thread.start()
    before, begun, own = where.cpu(), time.monotonic(), time.process_time()
    begin.set()
    time.sleep(plan.seconds / 2)
    connections = where.connections()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begun
    completed = sum(member.completed for member in members)
    used, own = where.cpu() - before, time.process_time() - own
    for member in members:
        member.session.close()
    claims = [took for member in members for took in member.claim_seconds]
    return {
        "tasks_s": completed / seconds,
        "server_us": 1e6 * used / completed,
        "worker_us": 1e6 * own / completed,
        "connections": connections,
        "tasks_per_claim": sum(member.claimed for member in members) / len(claims),
        "claim_ms": 1000 * median(claims),
    }


class SessionMember:
    """One simulated worker: claims, waits as long as its tasks take, settles; beats, votes and reports when due."""

    def __init__(self, where: Place, plan: Plan, number: int) -> None:
        self._plan = plan
        self._id = f"session-{number}"
        config = where.configs[number % plan.shards]
        self.session = TimedSession(config)
        self.session.run(
            fleet_queries.register(
                self._id, queues=None, names=[NAME], capabilities=(), capacity=plan.slots, version="1", host="here",
                pid=number, heartbeat_timeout=90.0,
            )
        )  # fmt: skip
        for _ in range(6):  # prepared and planned
            self.session.run(completing(self.session.run(claiming(self._id, 1)), self._id))
        self.completed = self.claimed = 0
        self.claim_seconds: list[float] = []
        self._due = {kind: time.monotonic() + seconds * random.random() for kind, seconds in _UPKEEP.items()}

    def work(self, begin: threading.Event) -> None:
        begin.wait()
        end = time.monotonic() + self._plan.seconds
        while time.monotonic() < end:
            begun = time.perf_counter()
            claimed = self._run(claiming(self._id, self._plan.slots))
            self.claim_seconds.append(time.perf_counter() - begun)
            self.claimed += len(claimed)
            time.sleep(self._plan.task_seconds)
            self.completed += len(self._run(completing(claimed, self._id)))
            self._keep_up()

    def _keep_up(self) -> None:
        now = time.monotonic()
        for kind, due in self._due.items():
            if now < due:
                continue
            self._due[kind] = now + _UPKEEP[kind]
            if kind == "heartbeat":
                self._run(fleet_queries.heartbeat(self._id, load=1, draining=False))
            elif kind == "election":
                self._run(fleet_queries.campaign(self._id, 30.0))
            else:
                self._run(stats.add(counted(), worker=self._id, number=time.monotonic_ns()))

    def _run(self, query: Query[T]) -> T:
        """Again if another session holds a row for long, as workers do."""
        while True:
            try:
                return self.session.run(query)
            except psycopg.errors.LockNotAvailable:
                continue


_UPKEEP = {"heartbeat": HEARTBEAT_SECONDS, "election": ELECTION_SECONDS, "report": REPORT_SECONDS}


# Real workers.


def run_worker(where: Place, plan: Plan) -> Figures:
    where.fill(plan.shards, plan.backlog * plan.shards)
    worker = Worker(where.over(plan.shards), concurrency=plan.slots, burst=True, names=[NAME], signals=False)
    seen: list[int] = []
    done = threading.Event()
    watching = threading.Thread(target=_watch, args=(where, seen, done))
    watching.start()
    before, begun, own = where.cpu(), time.monotonic(), time.process_time()
    worker.run_sync()
    seconds, used, own = time.monotonic() - begun, where.cpu() - before, time.process_time() - own
    done.set()
    watching.join()
    counts = {stat.key.outcome: stat.count for stat in worker.collector.totals() if not stat.key.name}
    tasks = plan.backlog * plan.shards
    return {
        "tasks_s": tasks / seconds,
        "server_us": 1e6 * used / tasks,
        "worker_us": 1e6 * own / tasks,
        "connections": max(seen),
        "tasks_per_claim": counts["claimed"] / counts["claim"],
    }


def _watch(where: Place, seen: list[int], done: threading.Event) -> None:
    while not done.wait(0.1) or not seen:
        seen.append(where.connections())


def run_sleepers(where: Place, plan: Plan) -> Figures:
    where.clear()
    config = where.over(plan.shards)
    with ExitStack() as stack:
        for number in range(0, plan.workers, PER_PROCESS):
            here = min(PER_PROCESS, plan.workers - number)
            command = [sys.executable, "-m", "benchmarks.simulation.workers", str(config.shards_file), str(here)]
            process = subprocess.Popen(command)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        for shard in range(plan.shards):
            await_sleep(where.url, plan.workers, f"shard_{shard}")
        time.sleep(8)  # until connections that the start needed are closed
        with Client(config) as client:
            for _ in range(3 * plan.workers * plan.shards):  # until each has its statements prepared
                client.submit_task(work)
                time.sleep(0.01)
            time.sleep(6)
            where.clear_tasks()
            connections, before, begun = where.connections(), where.cpu(), time.monotonic()
            count = 0
            while time.monotonic() - begun < plan.seconds:
                time.sleep(random.expovariate(plan.arrivals))
                client.submit_task(work, n=count)
                count += 1
        used = where.cpu() - before
        return {"server_us": 1e6 * used / count, "connections": connections, "wait_ms": 1000 * _waited(where, plan)}


def _waited(where: Place, plan: Plan) -> float:
    """From the insertion of a task to its claim, at the median."""
    waits = []
    with psycopg.connect(where.url) as db:
        for shard in range(plan.shards):
            query = f"SELECT extract(epoch FROM started_at - scheduled_at)::float8 FROM shard_{shard}.tasks"
            waits += [row[0] for row in db.execute(query.encode()) if row[0] is not None]
    return median(waits)

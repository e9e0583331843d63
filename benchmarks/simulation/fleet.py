"""The model of a fleet: producers, workers and their leader over shards, as they behave in `src/tasklib/worker`.

Every statement takes its measured CPU time of its server's cores, and waits for the log if it writes.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from benchmarks.simulation.costs import Costs
from benchmarks.simulation.engine import Cores, Process, Signal, Simulation
from benchmarks.simulation.server import ModelServer
from tasklib.maintenance import batches

BATCH = 500
"""The most tasks of one claim, and of one settlement."""
HEARTBEAT_SECONDS, DEAD_AFTER_SECONDS = 24.0, 90.0
ELECTION_SECONDS, LEASE_SECONDS = 8.5, 30.0
REPORT_SECONDS, REPORT_ROWS = 4.25, 5
SWEEP_SECONDS = 27.0
POLL_SECONDS, LISTENING_POLL_SECONDS = 0.875, 3.5
LONG_AWAKE_SECONDS = 0.1
IDLE_CONNECTIONS, BUSY_CONNECTIONS, LEADER_CONNECTIONS = 3, 5, 1
"""Of a worker to each shard: to listen, to beat, and up to three for all else."""


@dataclass(frozen=True)
class Plan:
    """What is simulated."""

    shards: int = 1
    workers: int = 1
    slots: int = 10
    task_seconds: float = 0.0
    arrivals: float = 0.0
    """Submissions per second, of one task each, over all shards."""
    backlog: int = 0
    """Tasks that wait at the beginning, in each shard."""
    servers: int = 1
    """The shards are spread over so many."""
    cores: int = 8
    """Of each server."""
    shards_per_worker: int | None = None
    """None: each worker serves all."""
    listening: int | None = None
    """So many workers listen, and the others poll; None: all listen."""
    flush_seconds: float | None = None
    """None: as measured."""
    one_machine: bool = False
    """Workers use the cores of the server, too, and one process runs them all."""
    in_turns: bool = False
    """Workers claim, run and settle one after the other, on one connection, as the sessions of `check` do."""
    led: bool = True
    """Whether each shard has a leader that performs its duties."""
    killed: int = 0
    """So many workers are lost at `killed_at`; the leader is among them."""
    killed_at: float = 0.0
    seconds: float = 60.0
    seed: int = 1


@dataclass
class Outcome:
    """What came of it."""

    submitted: int = 0
    completed: int = 0
    running: int = 0
    waiting: int = 0
    claims: int = 0
    claimed: int = 0
    settlements: int = 0
    notified: int = 0
    lost: int = 0
    """Tasks whose worker was killed."""
    recovered_after: float | None = None
    """Seconds from the kill until the last lost task waits again."""
    waits: list[float] = field(default_factory=list)
    """From a submission's commit to the start of its task."""
    claim_seconds: list[float] = field(default_factory=list)
    server_seconds: float = 0.0
    utilisation: float = 0.0
    """Of the servers' cores."""
    tasks_s: float = 0.0

    def wait(self, share: float) -> float:
        return quantile(self.waits, share)


def quantile(values: Sequence[float], share: float) -> float:
    """NaN of no values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else math.nan


class ModelShard:
    """The tasks of one schema, and the statements about them."""

    def __init__(self, fleet: ModelFleet, server: ModelServer, backlog: int) -> None:
        self._fleet = fleet
        self.server = server
        self.waiting: deque[float] = deque([0.0] * backlog)
        self.workers: list[ModelWorker] = []
        self.asleep: list[tuple[ModelWorker, Signal]] = []
        self.reported = 0
        self._locked = 0

    def claim(self, limit: int, *, cold: bool) -> Generator[float | Signal, bool, list[float]]:
        """Take tasks; when each was due. Rows that other claims hold are passed over, at a cost."""
        out, costs, begun = self._fleet.outcome, self._fleet.costs, self._fleet.sim.now
        taken = [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]
        cpu = costs.claim.of(len(taken)) + costs.skip * self._locked + cold * costs.cold
        self._locked += len(taken)
        out.claims += 1
        out.claimed += len(taken)
        out.running += len(taken)
        yield from self.server.run(cpu, writes=bool(taken))
        self._locked -= len(taken)
        if taken:
            out.claim_seconds.append(self._fleet.sim.now - begun)
        return taken

    def complete(self, count: int, *, cold: bool) -> Process:
        out, costs = self._fleet.outcome, self._fleet.costs
        yield from self.server.run(costs.complete.of(count) + cold * costs.cold)
        out.settlements += 1
        out.running -= count
        out.completed += count

    def submit(self) -> Process:
        """One task; it wakes one of the sleeping workers, and with it every session that listens in the database."""
        fleet, costs = self._fleet, self._fleet.costs
        wakes = bool(self.asleep)
        cpu = costs.submit_one + costs.cold + (costs.sleepers.of(len(self.asleep)) if wakes else 0.0)
        others = costs.listeners.of(sum(worker.listens for worker in self.workers)) if wakes else 0.0
        yield from self.server.run(cpu, notifies=wakes, others=others)
        fleet.outcome.submitted += 1
        fleet.outcome.notified += wakes
        self.waiting.append(fleet.sim.now)
        if wakes and self.asleep:
            self.asleep.pop(fleet.random.randrange(len(self.asleep)))[1].ring()


class ModelWorker:
    """One process with its slots, over the shards that it serves."""

    def __init__(self, fleet: ModelFleet, shards: Sequence[ModelShard], host: Cores, listens: bool) -> None:
        self._fleet = fleet
        self._host = host
        self.listens = listens
        self._free = fleet.plan.slots
        self._freed = Signal(fleet.sim)
        self.held = {id(shard): 0 for shard in shards}
        self._ended = {id(shard): 0 for shard in shards}
        self._results = {id(shard): Signal(fleet.sim) for shard in shards}
        self._wanting: set[int] = set()
        self._counted: set[int] = set()
        """Shards with something to report."""
        self._woken_at = dict.fromkeys(self.held, 0.0)
        self._has_slept = dict.fromkeys(self.held, True)
        self.is_lost = False
        for shard in shards:
            shard.workers.append(self)
            if fleet.plan.in_turns:
                fleet.sim.start(self._take_turns(shard))
            else:
                fleet.sim.start(self._claims(shard))
                fleet.sim.start(self._settles(shard))
            self._keep_up(shard)

    def _keep_up(self, shard: ModelShard) -> None:
        fleet, costs = self._fleet, self._fleet.costs
        fleet.every(HEARTBEAT_SECONDS, lambda: self._say(shard, costs.heartbeat))
        fleet.every(ELECTION_SECONDS, lambda: self._say(shard, costs.election, writes=False))
        fleet.every(REPORT_SECONDS, lambda: self._report(shard))

    def _say(self, shard: ModelShard, cpu: float, *, writes: bool = True) -> Process:
        if not self.is_lost:
            yield from shard.server.run(cpu + self._fleet.costs.cold, writes=writes)

    def _report(self, shard: ModelShard) -> Process:
        if id(shard) in self._counted or self.held[id(shard)]:
            self._counted.discard(id(shard))
            shard.reported += REPORT_ROWS
            yield from self._say(shard, self._fleet.costs.report)

    def _compute(self, seconds: float) -> Process:
        """On this worker's core; on one machine, on one of those that it shares with the server."""
        yield from self._host.take()
        if self._fleet.plan.one_machine:
            yield from self._fleet.servers[0].cores.use(seconds)
        else:
            yield seconds
        self._host.give_back(seconds)

    def _room(self, shard: ModelShard) -> int:
        """Shards that want slots have equal shares of them."""
        self._wanting.add(id(shard))
        fair = max(1, self._fleet.plan.slots // len(self._wanting))
        return min(BATCH, self._free, fair - self.held[id(shard)])

    def _claims(self, shard: ModelShard) -> Process:
        statement = self._fleet.costs.worker_task.fixed
        while not self.is_lost:
            room = self._room(shard)
            if room <= 0:
                yield self._freed
                continue
            self._free -= room
            yield from self._compute(statement)
            due = yield from shard.claim(room, cold=self._has_slept[id(shard)])
            self._free += room - len(due)
            if due:
                self._counted.add(id(shard))
                self.held[id(shard)] += len(due)
                yield from self._begin(shard, due)
            elif not self.is_lost:
                self._wanting.discard(id(shard))
                self._freed.ring()
                yield from self._rest(shard)

    def _begin(self, shard: ModelShard, due: Sequence[float]) -> Process:
        fleet = self._fleet
        yield from self._compute(fleet.costs.worker_task.each * len(due))
        fleet.outcome.waits += [fleet.sim.now - moment for moment in due]
        if not fleet.plan.task_seconds:
            self._end(shard, len(due))
        else:
            for _ in due:
                fleet.sim.after(fleet.plan.task_seconds, lambda: self._end(shard, 1))

    def _end(self, shard: ModelShard, count: int) -> None:
        self._ended[id(shard)] += count
        self._results[id(shard)].ring()

    def _settles(self, shard: ModelShard) -> Process:
        statement = self._fleet.costs.worker_task.fixed
        while not self.is_lost:
            count = min(BATCH, self._ended[id(shard)])
            if not count:
                yield self._results[id(shard)]
                continue
            self._ended[id(shard)] -= count
            yield from self._compute(statement)
            if self.is_lost:
                return
            yield from shard.complete(count, cold=self._has_slept[id(shard)])
            self.held[id(shard)] -= count
            self._free += count
            self._freed.ring()

    def _take_turns(self, shard: ModelShard) -> Process:
        plan, costs = self._fleet.plan, self._fleet.costs
        cold = plan.task_seconds > 0
        while True:
            yield from self._compute(costs.worker_task.fixed)
            self._counted.add(id(shard))
            due = yield from shard.claim(plan.slots, cold=cold)
            if not due:
                yield POLL_SECONDS
                continue
            yield from self._compute(costs.worker_task.each * len(due))
            self._fleet.outcome.waits += [self._fleet.sim.now - moment for moment in due]
            if plan.task_seconds:
                yield plan.task_seconds
            yield from self._compute(costs.worker_task.fixed)
            yield from shard.complete(len(due), cold=cold)

    def _rest(self, shard: ModelShard) -> Process:
        """Until it is woken, or a poll finds a task. After it was awake for long it announces that it sleeps."""
        fleet, costs = self._fleet, self._fleet.costs
        cold = self._has_slept[id(shard)]
        if self.listens and not cold:
            yield from shard.server.run(costs.doze)
        self._has_slept[id(shard)] = True
        while not shard.waiting and not self.is_lost:
            yield from shard.server.run(costs.poll + cold * costs.cold, writes=False)
            cold = True
            pause = LISTENING_POLL_SECONDS if self.listens else POLL_SECONDS
            woken = Signal(fleet.sim, pause * fleet.random.uniform(0.86, 1.14))
            entry = (self, woken)
            if self.listens:
                shard.asleep.append(entry)
            if (yield woken):
                break
            if entry in shard.asleep:
                shard.asleep.remove(entry)
        fleet.sim.after(LONG_AWAKE_SECONDS, lambda since=fleet.sim.now: self._stay_awake(shard, since))
        self._woken_at[id(shard)] = fleet.sim.now

    def _stay_awake(self, shard: ModelShard, since: float) -> None:
        """It has had work ever since: it doesn't count as asleep any more."""
        if self._woken_at[id(shard)] == since and all(entry[0] is not self for entry in shard.asleep):
            self._has_slept[id(shard)] = False


class ModelFleet:
    """All of it."""

    def __init__(self, plan: Plan, costs: Costs) -> None:
        self.plan, self.costs = plan, costs
        self.sim = Simulation()
        self.random = random.Random(plan.seed)
        self.outcome = Outcome(submitted=plan.backlog * plan.shards)
        flush = costs.flush_seconds if plan.flush_seconds is None else plan.flush_seconds
        self.servers = [ModelServer(self.sim, plan.cores, flush) for _ in range(plan.servers)]
        self.shards = [ModelShard(self, self.servers[n % plan.servers], plan.backlog) for n in range(plan.shards)]
        process = Cores(self.sim, 1)
        self.workers = [
            ModelWorker(
                self,
                self._served_by(number),
                process if plan.one_machine else Cores(self.sim, 1),
                listens=plan.listening is None or number < plan.listening,
            )
            for number in range(plan.workers)
        ]
        for shard in self.shards if plan.led else ():
            self.every(SWEEP_SECONDS, lambda shard=shard: self._sweep(shard))  # type: ignore[misc]
        if plan.arrivals:
            self.sim.start(self._produce())
        if plan.killed:
            self.sim.after(plan.killed_at, self._kill)

    def run(self) -> Outcome:
        plan, out = self.plan, self.outcome
        self.sim.run(plan.seconds)
        out.waiting = sum(len(shard.waiting) for shard in self.shards)
        out.server_seconds = sum(server.used_seconds for server in self.servers)
        cores = plan.seconds * plan.cores * plan.servers
        out.utilisation = sum(server.cores.busy_seconds for server in self.servers) / cores
        out.tasks_s = out.completed / plan.seconds
        return out

    def every(self, seconds: float, make: object) -> None:
        """Start a process again and again, out of step with the others."""
        self.sim.start(self._again(seconds, make))

    def _again(self, seconds: float, make: object) -> Process:
        assert callable(make)
        yield seconds * self.random.random()
        while True:
            yield from make()
            yield seconds * self.random.uniform(0.82, 1.18)

    def _served_by(self, number: int) -> list[ModelShard]:
        """Neighbouring workers serve neighbouring shards, so that each shard has as many."""
        each = self.plan.shards_per_worker or len(self.shards)
        return [self.shards[(number * each + n) % len(self.shards)] for n in range(min(each, len(self.shards)))]

    def _produce(self) -> Process:
        while True:
            yield self.random.expovariate(self.plan.arrivals)
            self.sim.start(self.random.choice(self.shards).submit())

    def _sweep(self, shard: ModelShard) -> Process:
        """The duties of a leader that grow with the fleet, the backlog and the traffic."""
        costs = self.costs
        yield from shard.server.run(costs.bury.of(len(shard.workers)))
        yield from shard.server.run(costs.snapshot.of(min(100_000, len(shard.waiting))))
        rows, shard.reported = shard.reported, 0
        yield from shard.server.run(costs.fold.of(rows))
        # The leader is among the lost: its lease ends, and then the next one waits until their heartbeats are overdue.
        late = max(DEAD_AFTER_SECONDS, LEASE_SECONDS)
        if self.plan.killed and self.sim.now >= self.plan.killed_at + late:
            yield from self._rescue(shard)

    def _kill(self) -> None:
        for worker in self.workers[: self.plan.killed]:
            worker.is_lost = True
            for shard in self.shards:
                shard.asleep = [entry for entry in shard.asleep if entry[0] is not worker]

    def _rescue(self, shard: ModelShard) -> Process:
        out = self.outcome
        lost = [worker for worker in shard.workers if worker.is_lost and worker.held[id(shard)]]
        held = sum(worker.held[id(shard)] for worker in lost)
        out.lost += held
        for worker in lost:
            worker.held[id(shard)] = 0
        limit = batches.FIRST
        while held:
            batch = min(limit, held)
            per_row = self.costs.rescue.fixed / batches.FIRST
            yield from shard.server.run(self.costs.rescue.each * held + per_row * batch)
            held, limit = held - batch, min(2 * limit, batches.MOST)
            out.running -= batch
            shard.waiting.extend([self.sim.now] * batch)
            while shard.asleep:
                shard.asleep.pop()[1].ring()
            out.recovered_after = self.sim.now - self.plan.killed_at


def simulated(plan: Plan, costs: Costs) -> Outcome:
    return ModelFleet(plan, costs).run()

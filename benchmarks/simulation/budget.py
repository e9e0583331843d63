"""Which bound a fleet meets first: what it needs of each thing, beside how much there is. Closed forms only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from benchmarks.simulation.costs import Costs
from benchmarks.simulation.fleet import (
    BATCH,
    BUSY_CONNECTIONS,
    ELECTION_SECONDS,
    HEARTBEAT_SECONDS,
    IDLE_CONNECTIONS,
    LEADER_CONNECTIONS,
    LISTENING_POLL_SECONDS,
    POLL_SECONDS,
    REPORT_ROWS,
    REPORT_SECONDS,
    SWEEP_SECONDS,
)
from tasklib.shards import MOST_SHARD

MOST_UTILISED = 0.7
"""Of cores and the like: beyond it queues grow fast."""
PRODUCER_CONNECTIONS = 1
"""Of each producer to each shard."""


@dataclass(frozen=True)
class Node:
    """A server with one shard."""

    cores: int = 16
    flush_seconds: float = 0.001
    connections: int = 2000
    """What its memory and its cores carry: about 6.5 MB each."""
    wal_bytes_s: float = 300e6


@dataclass(frozen=True)
class Design:
    """A fleet at a rate."""

    rate: float
    """Tasks per second."""
    shards: int
    workers: int
    slots: int = 50
    producers: int = 100
    shards_per_worker: int | None = None
    """None: all of them."""
    listening_per_shard: int | None = None
    """None: all workers listen. Of the others each polls."""
    submitted_at_once: int = 1
    node: Node = Node()

    @property
    def workers_per_shard(self) -> float:
        return self.workers * self.served / self.shards

    @property
    def served(self) -> int:
        """How many shards each worker serves."""
        return min(self.shards, self.shards_per_worker or self.shards)

    @property
    def listeners(self) -> float:
        """Of each shard."""
        most = self.workers_per_shard
        return most if self.listening_per_shard is None else min(most, self.listening_per_shard)

    @property
    def rate_per_shard(self) -> float:
        return self.rate / self.shards


class Need(NamedTuple):
    """Of one thing, as a share of what there is: above 1 the fleet can't work."""

    what: str
    share: float


def needs(design: Design, costs: Costs) -> list[Need]:
    """The scarcest first."""
    found = [
        Need("server cores", _cores(design, costs) / design.node.cores / MOST_UTILISED),
        Need("commits that notify", _notifying(design) * design.node.flush_seconds / MOST_UTILISED),
        Need("connections of a server", connections(design) / design.node.connections),
        Need("write-ahead log", design.rate_per_shard * costs.wal_bytes / design.node.wal_bytes_s),
        Need("the leader's connection", _leader(design, costs) / MOST_UTILISED),
        Need("a worker's core", _worker(design, costs) / MOST_UTILISED),
        Need("numbers of shards", design.shards / (MOST_SHARD + 1)),
    ]
    return sorted(found, key=lambda need: -need.share)


def connections(design: Design) -> float:
    """Of one server: two of a busy worker's three for claims and results are in use."""
    of_workers = design.workers_per_shard * (BUSY_CONNECTIONS - 2) + design.listeners
    return of_workers + LEADER_CONNECTIONS + design.producers * PRODUCER_CONNECTIONS


def idle_connections(workers: int) -> int:
    """Of one server with so many idle workers, and their leader."""
    return workers * IDLE_CONNECTIONS + LEADER_CONNECTIONS


def tasks_per_claim(design: Design) -> float:
    """While a claim is in flight, tasks come due and slots free up; at most what a worker's share of slots holds."""
    each = design.rate_per_shard / max(design.workers_per_shard, 1e-9)
    return min(max(1.0, each * 0.005), design.slots, BATCH)


def server_us(design: Design, costs: Costs) -> float:
    """Of the server's cores for one task, with all but what the fleet costs without tasks."""
    batch = tasks_per_claim(design)
    submit = costs.submit_one if design.submitted_at_once == 1 else _submitted_many(design, costs)
    run = costs.claim.of(batch) + costs.complete.of(batch)
    return 1e6 * (submit + run / batch + costs.retain)


def _submitted_many(design: Design, costs: Costs) -> float:
    return costs.submit_many + costs.submit_one / design.submitted_at_once


def upkeep(design: Design, costs: Costs) -> float:
    """Cores of one server for its workers, whether they have tasks or not."""
    rates = (costs.heartbeat + costs.cold) / HEARTBEAT_SECONDS
    rates += (costs.election + costs.cold) / ELECTION_SECONDS
    rates += (costs.report + costs.cold) / REPORT_SECONDS
    polling = design.workers_per_shard - design.listeners
    polls = (costs.poll + costs.cold) * (design.listeners / LISTENING_POLL_SECONDS + polling / POLL_SECONDS)
    return design.workers_per_shard * rates + polls


def _notifying(design: Design) -> float:
    """Commits per second that notify: of a fleet with slots to spare some worker sleeps, so each submission does."""
    return design.rate_per_shard / design.submitted_at_once if design.listeners else 0.0


def _cores(design: Design, costs: Costs) -> float:
    waking = costs.listeners.of(design.listeners) + costs.sleepers.of(design.listeners)
    tasks = design.rate_per_shard * server_us(design, costs) / 1e6
    return tasks + _notifying(design) * waking + upkeep(design, costs) + _leader(design, costs)


def _leader(design: Design, costs: Costs) -> float:
    """The share of its time in which the leader's one connection for duties computes."""
    rows = design.workers_per_shard * REPORT_ROWS * SWEEP_SECONDS / REPORT_SECONDS
    round_ = costs.bury.of(design.workers_per_shard) + costs.snapshot.of(0) + costs.fold.of(rows)
    return round_ / SWEEP_SECONDS + design.rate_per_shard * costs.retain


def _worker(design: Design, costs: Costs) -> float:
    """Cores of one worker, for its tasks and for each shard that it serves."""
    each = costs.worker_task.each + 2 * costs.worker_task.fixed / tasks_per_claim(design)
    return design.rate / design.workers * each + design.served * costs.worker_idle


def most(design: Design, costs: Costs) -> tuple[float, str]:
    """The highest rate of this fleet, and what it meets there."""
    low, high = 0.0, 1e9
    for _ in range(60):
        middle = (low + high) / 2
        if needs(replace(design, rate=middle), costs)[0].share > 1:
            high = middle
        else:
            low = middle
    return low, needs(replace(design, rate=high), costs)[0].what


def rescue_seconds(lost: int, costs: Costs, batches: list[int]) -> float:
    """Of the leader to take back so many tasks, in batches of these sizes, the last one repeated."""
    seconds, number = 0.0, 0
    while lost > 0:
        batch = min(lost, batches[min(number, len(batches) - 1)])
        per_row = costs.rescue.fixed / 500
        seconds += costs.rescue.each * lost + per_row * batch
        lost -= batch
        number += 1
    return seconds


def workers_for(rate: float, slots: int, task_seconds: float) -> int:
    """So many that seven tenths of their slots are in use."""
    return math.ceil(rate * task_seconds / slots / MOST_UTILISED)

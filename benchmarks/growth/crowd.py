"""Many workers at once, each claiming and completing on its own two connections, as busy workers do."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from statistics import median

from benchmarks.growth.measuring import WARM_UP, Figures, Pair, completion, medians
from benchmarks.growth.scene import ALL
from benchmarks.schema import BenchSchema
from tasklib.backends.postgres.claims import ClaimCursor
from tasklib.store import claim
from tasklib.store.claim import Claimed
from tasklib.worker.slots import BATCH, Prefetch

SPARE_CONNECTIONS = 10
"""Left to the server, and to the programs that observe."""


class Member:
    """Claims and completes until nothing is left; goes on where its last claim ended, when a worker would."""

    def __init__(self, schema: BenchSchema) -> None:
        self.pair = Pair(schema.config, visible=schema.postmaster is not None)
        self.tasks = 0
        self.claims: list[float] = []
        self._places = ClaimCursor(Prefetch(0).are_short)

    def server_ns(self) -> int:
        return self.pair.claiming.server_ns() + self.pair.settling.server_ns()

    def warm_up(self) -> None:
        """Have both statements prepared and planned."""
        for _ in range(WARM_UP):
            claimed = self.pair.claiming.run(self.pair.look(ALL, 1))
            more = self.pair.claiming.run(self.pair.on(ALL, claimed, 1))
            self.pair.settling.run(completion(claimed + more))

    def work(self, begin: threading.Barrier) -> None:
        begin.wait()
        while claimed := self._claim():
            self.tasks += len(self.pair.settling.run(completion(claimed)))

    def _claim(self) -> list[Claimed]:
        begun = time.perf_counter()
        if going_on := self._places.worth_going_on:
            query = claim.claim(ALL, BATCH, "growth", self._places.behind, **self.pair.terms)
        else:
            query = self.pair.look(ALL, BATCH)
        claimed = self.pair.claiming.run(query)
        seconds = time.perf_counter() - begun
        if going_on:
            self._places.went_on(BATCH, claimed)
        else:
            self._places.looked(BATCH, claimed, seconds)
        self.claims.append(seconds)
        return claimed or (self._claim() if going_on else claimed)


def fits(schema: BenchSchema, members: int) -> bool:
    """Whether the server has as many connections as they need."""
    return 2 * members + SPARE_CONNECTIONS <= int(schema.value("SHOW max_connections"))


def measure(schema: BenchSchema, members: int, tasks: int, rounds: int) -> Figures:
    """The medians of so many drains."""
    return medians([_drain(schema, members, tasks) for _ in range(rounds)])


def _drain(schema: BenchSchema, members: int, tasks: int) -> Figures:
    schema.clear()
    schema.insert(2 * WARM_UP * members + tasks, {})
    with ExitStack() as stack:
        crowd = [Member(schema) for _ in range(members)]
        for member in crowd:
            stack.callback(member.pair.close)
            member.warm_up()
        schema.calm()
        moments: list[tuple[float, int]] = []
        begin = threading.Barrier(members, lambda: moments.append(_moment(crowd)))
        pool = stack.enter_context(ThreadPoolExecutor(members))
        for worked in [pool.submit(member.work, begin) for member in crowd]:
            worked.result()
        moments.append(_moment(crowd))
    [(seconds, server_ns)] = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(moments)]
    done = sum(member.tasks for member in crowd)
    assert done == tasks, f"{done} of {tasks} tasks were completed"
    return {
        "tasks_s": done / seconds,
        "server_us": server_ns / 1000 / done,
        "claim_ms": 1000 * median(claim for member in crowd for claim in member.claims),
    }


def _moment(crowd: list[Member]) -> tuple[float, int]:
    return time.perf_counter(), sum(member.server_ns() for member in crowd)

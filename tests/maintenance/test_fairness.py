"""No task starves: in virtual time over hours, and for real with the thresholds scaled down to seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
import pytest

from benchmarks.fairness import HIGH, LOADS, LOW, MEDIUM, WITHOUT_AGING, Load, Simulation
from tasklib import AsyncClient, Config, task
from tasklib.events import TaskEnded
from tests.worker.watching import Watched, working

CONCURRENCY = 4
WARM_UP = 100
MEDIUM_AFTER, HIGH_AFTER = 1.0, 2.0
PROMISED = {"low": MEDIUM_AFTER + HIGH_AFTER, "medium": HIGH_AFTER}
SLACK_SECONDS = 3.0
"""What a busy machine may add: the tests wait for events, but the waits themselves are real."""


@pytest.mark.parametrize("load", LOADS, ids=["fits", "more than fits"])
def test_nobody_waits_longer_than_promised_and_than_those_ahead_take(load: Load) -> None:
    waits = Simulation(Load(load.title, load.fractions, hours=2)).run()
    assert {p: w.beyond_bound for p, w in waits.items()} == {HIGH: 0, MEDIUM: 0, LOW: 0}
    # Those ahead at the promotion are few as long as the high ones alone fit into the capacity.
    assert waits[LOW].longest <= load.promised(LOW) + 60
    assert waits[MEDIUM].longest <= load.promised(MEDIUM) + 60


def test_without_aging_low_tasks_would_starve_under_the_same_load() -> None:
    waits = Simulation(Load("", WITHOUT_AGING.fractions, hours=2, medium_after=1e9, high_after=1e9)).run()
    assert waits[LOW].longest > 3600


class Started(NamedTuple):
    """A task of the real run, as the table remembers it."""

    level: str
    due: datetime
    started: datetime

    @property
    def waited(self) -> float:
        return (self.started - self.due).total_seconds()


@pytest.mark.timeout(120)
async def test_low_tasks_are_started_as_promised_under_a_constant_load_of_high_ones(
    config: Config, db: psycopg.Connection
) -> None:
    """High at 90 % of what this worker can do, and in all 110 %: without aging no low task would be next."""

    @task
    async def work() -> None:
        await asyncio.sleep(0.05)

    db.execute(
        "UPDATE settings SET promote_to_medium_after_seconds = %s, promote_to_high_after_seconds = %s",
        (MEDIUM_AFTER, HIGH_AFTER),
    )
    async with AsyncClient(config) as client, working(config, concurrency=CONCURRENCY) as worker:
        per_second = await _capacity(client, worker, work)
        submitted = await _load(client, work, per_second, seconds=8.0)
        await worker.until(TaskEnded, count=WARM_UP + submitted)
    tasks = _tasks(db)
    assert len(tasks) == submitted
    for level, promised in PROMISED.items():
        longest = max(_judged(t, tasks, promised, per_second) for t in tasks if t.level == level)
        print(f"{level}: promised {promised:g} s and those ahead, longest wait {longest:.2f} s")
        assert longest > MEDIUM_AFTER, "the load was no load"


def _judged(one: Started, tasks: Sequence[Started], promised: float, per_second: float) -> float:
    """Hold one task against the promise; returns how long it waited."""
    promotion = one.due + timedelta(seconds=promised)
    between = [t for t in tasks if promotion <= t.started < one.started]
    ahead = [t for t in between if t.due < one.due]
    # A claim takes a lane's next tasks together: those behind its head may be younger, once for each other lane.
    assert len(between) - len(ahead) <= 2 * (CONCURRENCY - 1), "somebody who came later went first"
    assert one.waited <= promised + len(ahead) / per_second + SLACK_SECONDS
    return one.waited


async def _capacity(client: AsyncClient, worker: Watched, work: Any) -> float:
    """How many tasks a second this worker does on this machine, now."""
    began = time.monotonic()
    await client.submit_many(work, [{}] * WARM_UP, tags={"warm": True})
    await worker.until(TaskEnded, count=WARM_UP)
    return WARM_UP / (time.monotonic() - began)


async def _load(client: AsyncClient, work: Any, per_second: float, seconds: float) -> int:
    """Submit tasks evenly for so long, behind a little backlog of high ones; returns how many."""
    fractions = {"high": 0.90, "medium": 0.12, "low": 0.08}
    backlog = await client.submit_many(work, [{}] * int(1.5 * per_second), priority="high")
    submitted = dict.fromkeys(fractions, 0)
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        missing = {level: int(elapsed * per_second * f) - submitted[level] for level, f in fractions.items()}
        items = [work.options(priority=level).bind() for level, count in missing.items() for _ in range(count)]
        if items:
            await client.submit_many(items)
        for level, count in missing.items():
            submitted[level] += count
        await asyncio.sleep(0.05)  # the beat of the load
    return len(backlog) + sum(submitted.values())


def _tasks(db: psycopg.Connection) -> list[Started]:
    names = {HIGH: "high", MEDIUM: "medium", LOW: "low"}
    rows = db.execute("SELECT priority, scheduled_at, started_at FROM tasks WHERE NOT tags ? 'warm'").fetchall()
    return [Started(names[priority], due, started) for priority, due, started in rows]

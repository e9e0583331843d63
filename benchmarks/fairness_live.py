"""No task starves, for real: a worker under load, with the thresholds scaled down to seconds.

    python -m benchmarks.fairness_live

Ends with an error if a task waited longer than promised, or if one that came later went first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from benchmarks.fairness import HIGH, LOW, MEDIUM
from tasklib import AsyncClient, Config, task
from tasklib.events import TaskEnded
from tasklib.testing import databases
from tests.worker.watching import Watched, working

CONCURRENCY = 4
WARM_UP = 100
MEDIUM_AFTER, HIGH_AFTER = 1.0, 2.0
PROMISED = {"low": MEDIUM_AFTER + HIGH_AFTER, "medium": HIGH_AFTER}
SLACK_SECONDS = 3.0
"""What a busy machine may add."""


class Started(NamedTuple):
    """A task of the real run, as the table remembers it."""

    level: str
    due: datetime
    started: datetime

    @property
    def waited(self) -> float:
        return (self.started - self.due).total_seconds()


async def run(config: Config, db: psycopg.Connection) -> None:
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
    assert len(between) - len(ahead) <= 2 * (CONCURRENCY - 1), "a task that was submitted later ran first"
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


def main() -> None:
    with (
        databases.server() as server,
        databases.template(server) as migrated,
        databases.database(server, migrated) as url,
        psycopg.connect(url, autocommit=True) as db,
    ):
        asyncio.run(run(Config(url), db))


if __name__ == "__main__":
    main()

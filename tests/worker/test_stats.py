"""What workers count of their own work."""

from __future__ import annotations

import asyncio
from collections import Counter

import psycopg

from tasklib import AsyncClient, Config, task
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import TaskStarted
from tasklib.store import fleet, stats
from tasklib.tasks.retry import Reject
from tests.worker.watching import burst, working


async def _totals(config: Config) -> dict[tuple[str, str, str], int]:
    link = ReconnectingConnection(config, "test")
    found: Counter[tuple[str, str, str]] = Counter()
    for t in await link.run(stats.totals()):
        found[t.key.level, t.key.outcome, t.key.reason] += t.count
    link.drop()
    return dict(found)


async def test_each_outcome_is_counted_once_with_its_time_when_the_worker_has_ended(
    config: Config, db: psycopg.Connection
) -> None:
    @task
    async def well() -> None: ...

    @task(max_retries=1)
    async def badly() -> None:
        raise ValueError("no")

    @task
    def rejected() -> None:
        raise Reject("never")

    client = AsyncClient(config)
    await client.submit_many(well, [{}] * 300)
    await client.submit_task(badly)
    await client.submit_task(rejected, priority="low")
    await burst(config, concurrency=20)
    totals = await _totals(config)
    counted = {key: n for key, n in totals.items() if key[0]}
    assert counted == {
        ("medium", "completed", ""): 300,
        ("medium", "failed", "error"): 1,
        ("low", "dead_letter", "rejected"): 1,
    }
    assert totals["", "claimed", ""] == totals["", "settled", ""] == 302
    assert 1 <= totals["", "claim", ""] <= 302
    [done] = [
        t for t in await ReconnectingConnection(config, "test").run(stats.totals()) if t.key.outcome == "completed"
    ]
    assert sum(done.buckets) == sum(done.waits) == 300
    assert done.seconds > 0
    assert done.waited > 0
    client.close()


async def test_work_given_back_and_results_refused_are_counted(config: Config, db: psycopg.Connection) -> None:
    @task
    async def long_one() -> None:
        await asyncio.sleep(600)

    client = AsyncClient(config)
    await client.submit_task(long_one)
    async with working(config) as watched:
        await watched.until(TaskStarted)
    assert (await _totals(config))["medium", "released", ""] == 1
    async with working(config) as watched:
        await watched.until(TaskStarted)
        db.execute("UPDATE tasks SET lease_token = lease_token + 1")
    assert (await _totals(config))["medium", "stale", ""] == 1
    client.close()


async def test_the_first_worker_of_a_deploy_announces_it(config: Config) -> None:
    link = ReconnectingConnection(config, "test")
    for stamp in ("2026-05-04T12:00:00Z", "2026-05-04T12:00:00Z", "2026-05-05T12:00:00+00:00"):
        await burst(config.with_changes(deployed_at=stamp))
    found = await link.run(fleet.deploys())
    assert [d.deployed_at.day for d in found] == [5, 4]
    assert found[0].seen_at > found[1].seen_at

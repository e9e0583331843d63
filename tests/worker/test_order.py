"""The order in which a worker begins its tasks, over many names, with and without claiming ahead."""

from __future__ import annotations

import random

import psycopg
import pytest

from tasklib import Config, task
from tasklib.store.claim import CROWD
from tests.worker.watching import burst

NAMES = [f"name_{n}" for n in range(50)]
TASKS = 400


@pytest.mark.parametrize("slots", [1, 5])
@pytest.mark.parametrize("max_prefetch", [0, 100], ids=["no prefetch", "prefetch"])
async def test_tasks_of_fifty_names_begin_in_order_and_none_is_overtaken_by_more_than_the_slots(
    config: Config, db: psycopg.Connection, slots: int, max_prefetch: int
) -> None:
    begun: list[int] = []

    async def work(number: int) -> None:
        begun.append(number)

    for name in NAMES:
        task(work, name=name)
    chance = random.Random(slots)
    # Far enough from the borders of aging that the time that passes here changes nothing.
    ages = [age + n / 10 for age in range(50, 3000, 100) for n in range(30)]
    rows = [
        (number, chance.choice(NAMES), chance.choice((-10, -1, 0, 7, 100)), chance.choice(ages), chance.random() < 0.3)
        for number in range(TASKS)
    ]
    with db.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO tasks (kwargs, name, priority, scheduled_at, state, next_retry_at) VALUES "
            "(jsonb_build_object('number', %s), %s, %s, now() - make_interval(secs => %s), 'pending', NULL)",
            [row[:4] for row in rows],
        )
    db.execute(
        "UPDATE tasks SET state = 'failed', retry_count = 1, next_retry_at = scheduled_at + interval '50 ms' "
        "WHERE (kwargs ->> 'number')::int = ANY (%s)",
        ([row[0] for row in rows if row[4]],),
    )
    model = db.execute(
        "SELECT (kwargs ->> 'number')::int FROM tasks "
        "ORDER BY tasklib_effective_priority(tasks) DESC, COALESCE(next_retry_at, scheduled_at), id"
    ).fetchall()
    db.execute(
        "INSERT INTO tasks (name, scheduled_at) "
        "SELECT 'not served', now() - interval '1 h' FROM generate_series(1, %s)",
        (3 * CROWD,),
    )
    await burst(config.with_changes(max_prefetch=max_prefetch), concurrency=slots)
    expected = {number: place for place, (number,) in enumerate(model)}
    displaced = [place - expected[number] for place, number in enumerate(begun)]
    assert len(begun) == TASKS
    assert max(displaced, default=0) <= slots - 1
    assert min(displaced, default=0) >= 1 - slots
    apart = db.execute("SELECT DISTINCT state, lane, lease_token, history FROM tasks WHERE name = 'not served'")
    assert apart.fetchall() == [("pending", "not served", 0, None)]

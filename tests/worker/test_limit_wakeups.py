"""Behind limits no wake-up is lost: a task whose limits have room doesn't wait for a poll while a worker sleeps.

The workers poll every few minutes here, so what is not found by a notification is not found in time.
"""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tasklib import AsyncClient, Config, Limit, task
from tasklib.backends.postgres.claims import PostgresClaims
from tasklib.events import TaskEnded, TaskStarted
from tasklib.worker.slots import Prefetch
from tests.eventually import soon
from tests.store.test_limited_claim import lane, set_limit
from tests.worker.watching import Watched, working

NEVER = 1000.0
BEHIND = {
    "a share": f"INSERT INTO tasks (name, lane) VALUES ('work', {lane('sacme')})",
    "a limit": f"INSERT INTO tasks (name, lane) VALUES ('work', {lane('lsome=')})",
    "a queue": "INSERT INTO tasks (name, queue) VALUES ('work', 'bounded')",
    "a name": "INSERT INTO tasks (name) VALUES ('work')",
    "a name, set apart": "INSERT INTO tasks (name, lane) VALUES ('work', 'work')",
}


@pytest.fixture(params=BEHIND)
def behind(request: pytest.FixtureRequest, db: psycopg.Connection) -> str:
    """A statement that inserts a task behind a limit that has room."""
    set_limit(db, "some", max_running=10)
    if request.param == "a queue":
        set_limit(db, "queue:bounded", max_running=10)
    if request.param.startswith("a name"):
        set_limit(db, "name:work", max_running=10)
    return BEHIND[request.param]


@pytest.fixture
def slow(config: Config) -> Config:
    return config.with_changes(poll_interval_seconds=NEVER)


@pytest.fixture
def held() -> asyncio.Event:
    """The function `work` runs until this is set."""
    let_go = asyncio.Event()

    @task(name="work")
    async def work() -> None:
        await let_go.wait()

    return let_go


def _summon(db: psycopg.Connection, worker: Watched, *inserts: str) -> None:
    """Insert tasks for which this worker is chosen."""
    db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
    for insert in inserts:
        db.execute(insert.encode())
    db.execute("ALTER TABLE tasks ENABLE TRIGGER tasks_wake")
    db.execute("SELECT pg_notify(wake_channel, id) FROM workers WHERE id = %s", [worker.worker.id])


async def test_a_worker_without_room_wakes_others_for_tasks_behind_limits(
    slow: Config, db: psycopg.Connection, behind: str, held: asyncio.Event
) -> None:
    async with working(slow, concurrency=1) as a, working(slow, concurrency=1) as b:
        for each in (a, b):
            await each.asleep()
        _summon(db, a, behind, behind)
        for each in (a, b):
            await each.until(TaskStarted)
        held.set()


async def test_a_worker_that_takes_a_plain_task_wakes_others_for_one_behind_a_limit(
    slow: Config, db: psycopg.Connection, behind: str, held: asyncio.Event
) -> None:
    @task(name="plain")
    async def plain() -> None:
        await held.wait()

    async with working(slow, concurrency=1) as a, working(slow, concurrency=1) as b:
        for each in (a, b):
            await each.asleep()
        _summon(db, a, "INSERT INTO tasks (name, priority) VALUES ('plain', 100)", behind)
        for each in (a, b):
            await each.until(TaskStarted)
        held.set()


async def test_a_worker_that_leaves_wakes_others_for_tasks_behind_limits(
    slow: Config, db: psycopg.Connection, behind: str, held: asyncio.Event
) -> None:
    held.set()
    async with working(slow) as stays:
        await stays.asleep()
        async with working(slow) as leaves:
            await leaves.asleep()
            db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
            db.execute(behind.encode())  # as if the notification were still under way when it leaves
        await stays.until(TaskEnded)


async def test_many_lanes_behind_limits_are_passed_on_to_all(
    slow: Config, db: psycopg.Connection, held: asyncio.Event
) -> None:
    async with working(slow, concurrency=1) as a, working(slow, concurrency=1) as b:
        for each in (a, b):
            await each.asleep()
        # Not served by the other one, but for the last.
        others = [f"INSERT INTO tasks (name, lane) VALUES ('elsewhere', {lane(f's{n:03}')})" for n in range(30)]
        ours = f"INSERT INTO tasks (name, lane) VALUES ('work', {lane('szzz')})"
        _summon(db, a, *others, ours, ours)
        for each in (a, b):
            await each.until(TaskStarted)
        held.set()


async def test_a_slot_that_becomes_free_takes_a_task_behind_a_limit_though_others_may_be_claimed_ahead(
    slow: Config, db: psycopg.Connection, behind: str, held: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Prefetch, "count", 5)
    monkeypatch.setattr(PostgresClaims, "are_short", True)

    @task(name="first")
    async def first() -> None:
        await held.wait()

    async with working(slow, concurrency=1) as watched:
        await watched.asleep()
        db.execute("INSERT INTO tasks (name) VALUES ('first')")
        await watched.until(TaskStarted)
        db.execute(behind.encode())
        # It has looked, and found no slot for it.
        await soon(lambda: watched.worker._claimer.claims.needs_a_slot)
        held.set()
        await watched.until(TaskEnded, count=2)


async def test_the_next_token_of_a_rate_is_passed_on_by_a_worker_that_has_no_slot_by_then(
    slow: Config, db: psycopg.Connection, held: asyncio.Event
) -> None:
    @task(name="rated")
    async def rated() -> None: ...

    set_limit(db, "rate", rate=1, per=3, burst=1)
    insert = f"INSERT INTO tasks (name, lane) VALUES ('rated', {lane('lrate=')})"
    async with working(slow, concurrency=1) as a, working(slow, concurrency=1) as b:
        for each in (a, b):
            await each.asleep()
        _summon(db, a, insert, insert)
        await a.until(TaskEnded)
        await a.asleep()
        _summon(db, a, "INSERT INTO tasks (name) VALUES ('work')")
        await soon(lambda: len(a.all(TaskEnded)) + len(b.all(TaskEnded)) == 2)
        held.set()


async def test_the_end_of_a_task_that_ran_when_its_limit_was_set_makes_room(
    slow: Config, db: psycopg.Connection, held: asyncio.Event
) -> None:
    async with AsyncClient(slow) as client, working(slow, concurrency=2) as watched:
        db.execute("INSERT INTO tasks (name) VALUES ('work')")
        await watched.until(TaskStarted)
        await client.set_limit("queue:default", max_running=1)
        db.execute("INSERT INTO tasks (name) VALUES ('work')")
        await soon(lambda: watched.worker._claimer.claims._lanes.look_in is not None)
        held.set()
        await watched.until(TaskEnded, count=2)


@pytest.mark.parametrize("change", ["raised", "removed", "made by an operator and reset"])
async def test_a_limit_that_is_changed_wakes_workers(slow: Config, change: str) -> None:
    @task(name="limited", limits=[Limit("some", max_running=1)])
    async def limited() -> None: ...

    async with AsyncClient(slow) as client, working(slow, concurrency=2) as watched:
        await client.set_limit("some", max_running=0)
        id_ = await client.submit_task(limited)
        await watched.asleep()
        match change:
            case "raised":
                await client.set_limit("some", max_running=2)
            case "removed":
                await client.remove_limit("some")
            case _:
                await client.reset_limit("some")
        await client.wait_for(id_, timeout=120)

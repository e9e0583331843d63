"""As many sleepers are woken as there is work for, of those that serve it. One that can't take it wakes others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest

from tasklib import AsyncClient, Config, task
from tasklib.backends.postgres.backend import PostgresBackend
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingPool
from tasklib.events import TaskEnded, TaskStarted
from tests.eventually import soon
from tests.worker.watching import Watched, working

NEVER = 1000.0
INSERT = "INSERT INTO tasks (name) VALUES ('work')"
Sleep = Callable[..., None]


@pytest.fixture
def listener(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for channel in ("tasklib_public", "wakes"):
            connection.execute(f"LISTEN {channel}".encode())
        yield connection


@pytest.fixture
def sleeps(db: psycopg.Connection) -> Sleep:
    def sleeps(
        id_: str,
        *,
        names: Sequence[str] | None = ("work",),
        queues: Sequence[str] | None = None,
        capabilities: Sequence[str] = (),
        capacity: int = 10,
        status: str = "active",
        silent: float = 0.0,
    ) -> None:
        db.execute(
            "INSERT INTO workers (id, names, queues, capabilities, capacity, reported_status, asleep, wake_channel, "
            "last_heartbeat) VALUES (%s, %s, %s, %s, %s, %s, true, 'wakes', now() - %s * interval '1 s')",
            (
                id_,
                names and list(names),
                queues and list(queues),
                list(capabilities),
                capacity,
                status,
                silent,
            ),
        )

    return sleeps


def _woken(listener: psycopg.Connection, db: psycopg.Connection) -> list[str]:
    """The workers woken since the last call: all that come before a mark of our own."""
    db.execute("NOTIFY wakes, 'mark'")
    ids: list[str] = []
    for notification in listener.notifies(timeout=60):
        if notification.payload == "mark":
            return ids
        ids.append(notification.payload or "all")
    raise AssertionError("the mark never came")


def test_one_task_wakes_one_of_many_by_chance(
    listener: psycopg.Connection, db: psycopg.Connection, sleeps: Sleep
) -> None:
    for n in range(4):
        sleeps(f"w{n}")
    woken: Counter[str] = Counter()
    for _ in range(60):
        db.execute(INSERT)
        [one] = _woken(listener, db)
        woken[one] += 1
    assert set(woken) == {"w0", "w1", "w2", "w3"}


def test_only_a_worker_that_serves_the_task_is_woken(
    listener: psycopg.Connection, db: psycopg.Connection, sleeps: Sleep
) -> None:
    sleeps("another name", names=["other"])
    sleeps("another queue", queues=["mail"])
    sleeps("draining", status="draining")
    db.execute(INSERT)
    assert _woken(listener, db) == []
    sleeps("any", names=None)
    db.execute(INSERT)
    assert _woken(listener, db) == ["any"]
    db.execute("INSERT INTO tasks (name, required_capabilities) VALUES ('work', '{gpu}')")
    assert _woken(listener, db) == []
    sleeps("capable", capabilities=["ffmpeg", "gpu"])
    db.execute("INSERT INTO tasks (name, required_capabilities) VALUES ('work', '{gpu}')")
    assert _woken(listener, db) == ["capable"]
    db.execute("INSERT INTO tasks (name, queue) VALUES ('work', 'mail')")
    assert set(_woken(listener, db)) < {"another queue", "any", "capable"}


def test_a_worker_whose_heartbeat_is_late_is_woken_only_if_there_is_no_other(
    listener: psycopg.Connection, db: psycopg.Connection, sleeps: Sleep
) -> None:
    sleeps("late", silent=60)
    db.execute(INSERT)
    assert _woken(listener, db) == ["late"]
    sleeps("on time")
    for _ in range(20):
        db.execute(INSERT)
        assert _woken(listener, db) == ["on time"]


@pytest.mark.parametrize(("tasks", "woken"), [(1, 1), (10, 1), (11, 2), (35, 4), (1000, 5)])
def test_many_tasks_wake_as_many_workers_as_have_slots_for_them(
    listener: psycopg.Connection, db: psycopg.Connection, sleeps: Sleep, tasks: int, woken: int
) -> None:
    for n in range(5):
        sleeps(f"w{n}", capacity=10)
    db.execute("INSERT INTO tasks (name) SELECT 'work' FROM generate_series(1, %s)", [tasks])
    assert len(_woken(listener, db)) == woken


def test_workers_are_woken_for_each_kind_of_task_and_all_of_them_for_very_many_kinds(
    listener: psycopg.Connection, db: psycopg.Connection, sleeps: Sleep
) -> None:
    sleeps("a", names=["a"])
    sleeps("b", names=["b"])
    sleeps("c", names=["c"])
    db.execute("INSERT INTO tasks (name) VALUES ('a'), ('b')")
    assert sorted(_woken(listener, db)) == ["a", "b"]
    db.execute("INSERT INTO tasks (name) SELECT 'name ' || n FROM generate_series(1, 100) AS n")
    assert _woken(listener, db) == ["all"]


def test_a_task_at_a_gate_wakes_no_worker(listener: psycopg.Connection, db: psycopg.Connection, sleeps: Sleep) -> None:
    sleeps("w")
    db.execute("INSERT INTO tasks (name, waits_for) VALUES ('work', gen_random_uuid())")
    assert _woken(listener, db) == []


def test_a_producer_in_a_long_transaction_holds_up_neither_producers_nor_workers(
    listener: psycopg.Connection, db: psycopg.Connection, sleeps: Sleep, database_url: str
) -> None:
    sleeps("w")
    with psycopg.connect(database_url) as producer:
        producer.execute(INSERT)  # and doesn't commit
        db.execute("SET lock_timeout = '5s'")
        db.execute(INSERT)
        db.execute("UPDATE workers SET last_heartbeat = now(), asleep = false")
        db.execute("UPDATE workers SET asleep = true")
        db.execute(INSERT)
        assert _woken(listener, db) == ["w", "w"]
    assert _woken(listener, db) == ["w"]


def _summon(db: psycopg.Connection, worker: Watched, tasks: int) -> None:
    """Insert tasks for which this worker is chosen."""
    db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
    for _ in range(tasks):
        db.execute(INSERT)
    db.execute("ALTER TABLE tasks ENABLE TRIGGER tasks_wake")
    db.execute("SELECT pg_notify(wake_channel, id) FROM workers WHERE id = %s", [worker.worker.id])


async def test_a_worker_without_room_wakes_others_for_what_it_was_woken_for(
    config: Config, db: psycopg.Connection
) -> None:
    let_go = asyncio.Event()

    @task(name="work")
    async def work() -> None:
        await let_go.wait()

    options = {"poll_interval_seconds": NEVER, "concurrency": 1}
    async with working(config, **options) as a, working(config, **options) as b, working(config, **options) as c:
        for each in (a, b, c):
            await each.asleep()
        _summon(db, a, 3)
        for each in (a, b, c):
            await each.until(TaskStarted)
        # Woken once more while all are busy, it has no worker to wake; the task runs when one of them is free.
        _summon(db, b, 1)
        let_go.set()
        await soon(lambda: sum(len(each.all(TaskEnded)) for each in (a, b, c)) == 4)


async def test_a_worker_that_leaves_wakes_others(config: Config, db: psycopg.Connection) -> None:
    @task(name="work")
    async def work() -> None: ...

    async with working(config, poll_interval_seconds=NEVER) as stays:
        await stays.asleep()
        async with working(config, poll_interval_seconds=NEVER) as leaves:
            await leaves.asleep()
            db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
            db.execute(INSERT)  # as if the notification were still under way when it leaves
        await stays.until(TaskEnded)


async def test_a_task_for_which_a_lost_worker_was_woken_is_found_by_the_poll(
    config: Config, db: psycopg.Connection, sleeps: Sleep
) -> None:
    @task(name="work")
    async def work() -> None: ...

    sleeps("killed")
    async with working(config, poll_interval_seconds=0.1) as watched:
        await watched.asleep()
        db.execute("UPDATE workers SET asleep = false WHERE id <> 'killed'")  # so that the other one is chosen
        db.execute(INSERT)
        await watched.until(TaskEnded)


async def test_a_worker_that_hears_nothing_any_more_is_not_relied_on(config: Config, db: psycopg.Connection) -> None:
    @task(name="work")
    async def work() -> None: ...

    async with working(config, poll_interval_seconds=0.1) as watched:
        await watched.asleep()
        backend = watched.worker._backend
        assert isinstance(backend, PostgresBackend)
        backend.notifier.listening.clear()
        await soon(lambda: db.execute("SELECT asleep FROM workers").fetchone() == (False,))
        backend.notifier.listening.set()
        await watched.asleep()
        await AsyncClient(config).submit_task(work)
        await watched.until(TaskEnded)


async def test_an_idle_worker_polls_by_one_statement_that_claims_nothing(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    run = ReconnectingPool.run

    async def noted(self: ReconnectingPool, query: Query[Any], *arguments: Any) -> Any:
        asked[query.name] += 1
        return await run(self, query, *arguments)

    async with working(config, poll_interval_seconds=0.02) as watched:
        await watched.asleep()
        monkeypatch.setattr(ReconnectingPool, "run", noted)
        await soon(lambda: asked["outlook"] >= 40)
    assert asked["claim"] <= asked["outlook"] / 6

"""An idle worker is woken by NOTIFY, not by the poll, through every backend; delayed tasks start when due."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

import tasklib
from tasklib import AsyncClient, Client, Config, task
from tasklib.backends.postgres.notifier import Notifier
from tasklib.backends.postgres.sleep import Wakeup
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Events, TaskEnded, TaskStarted, Woken
from tests.worker.watching import working

NEVER = 1000.0


@task(name="ping")
async def _ping(n: int = 0) -> int:
    return n


async def _async_client(url: str) -> None:
    await AsyncClient(url).submit_task("ping", n=1)


async def _sync_client(url: str) -> None:
    await asyncio.to_thread(lambda: Client(url).submit_task("ping", n=1))


async def _module(url: str) -> None:
    tasklib.init(url)
    await tasklib.submit_task("ping", n=1)


async def _typed_method(url: str) -> None:
    tasklib.init(url)
    await _ping.submit(n=1)


async def _many(url: str) -> None:
    await AsyncClient(url).submit_many("ping", [{"n": n} for n in range(3)])


async def _copy(url: str) -> None:
    await AsyncClient(url).submit_many("ping", [{"n": n} for n in range(150)])


async def _with_key(url: str) -> None:
    await AsyncClient(url).submit_task("ping", n=1, idempotency_key="k")


async def _psycopg_transaction(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await AsyncClient(url).submit_task("ping", n=1, connection=connection)


async def _asyncpg_transaction(url: str) -> None:
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        await AsyncClient(url).submit_task("ping", n=1, connection=connection)
    await connection.close()


async def _sqlalchemy_session(url: str) -> None:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        Client(url).submit_task("ping", n=1, connection=session)
        session.commit()
    engine.dispose()


async def _plain_sql(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("INSERT INTO tasks (name, kwargs) VALUES ('ping', '{\"n\": 1}')")


BACKENDS = [
    _async_client,
    _sync_client,
    _module,
    _typed_method,
    _many,
    _copy,
    _with_key,
    _psycopg_transaction,
    _asyncpg_transaction,
    _sqlalchemy_session,
    _plain_sql,
]


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.__name__.strip("_"))
async def test_idle_worker_is_woken_by_its_backend(
    config: Config, database_url: str, backend: Callable[[str], Awaitable[None]]
) -> None:
    tasklib.tasks.registry.register(_ping)
    async with working(config, poll_interval_seconds=NEVER, concurrency=200) as watched:
        await watched.asleep()
        await backend(database_url)
        await watched.until(TaskEnded)
        assert {e.by for e in watched.all(Woken)} == {"notify"}


async def test_delayed_task_starts_when_it_is_due_without_a_poll(config: Config) -> None:
    tasklib.tasks.registry.register(_ping)
    client = AsyncClient(config)
    async with working(config, poll_interval_seconds=NEVER) as watched:
        await watched.asleep()
        task_id = await client.submit_task("ping", n=1, delay_seconds=0.7)
        await watched.ended(task_id, "completed")
        assert "due" in {e.by for e in watched.all(Woken)}
    row = await client.get_task(task_id)
    assert row is not None
    assert row.started_at is not None
    assert row.started_at >= row.scheduled_at


async def test_sooner_task_is_not_kept_waiting_by_a_later_one(config: Config) -> None:
    tasklib.tasks.registry.register(_ping)
    client = AsyncClient(config)
    async with working(config, poll_interval_seconds=NEVER) as watched:
        await client.submit_task("ping", n=1, delay_seconds=500)
        await watched.asleep()
        soon = await client.submit_task("ping", n=2, delay_seconds=0.3)
        await watched.ended(soon, "completed")


async def test_retry_starts_when_it_is_due_without_a_poll(config: Config) -> None:
    @task
    async def once_more() -> str:
        if tasklib.current_task().attempt == 1:
            raise ValueError
        return "well"

    client = AsyncClient(config)
    async with working(config.with_changes(base_retry_delay_seconds=0.3), poll_interval_seconds=NEVER) as watched:
        await watched.asleep()
        task_id = await client.submit_task(once_more)
        await watched.ended(task_id, "completed")


async def test_polling_alone_finds_tasks_where_listen_is_off(config: Config) -> None:
    tasklib.tasks.registry.register(_ping)
    client = AsyncClient(config)
    async with working(config.with_changes(listen=False), poll_interval_seconds=0.2) as watched:
        await watched.until(Woken)
        task_id = await client.submit_task("ping", n=1)
        await watched.ended(task_id, "completed")
        assert "notify" not in {e.by for e in watched.all(Woken)}


async def test_listener_comes_back_and_looks_at_once(config: Config, db: psycopg.Connection) -> None:
    tasklib.tasks.registry.register(_ping)
    client = AsyncClient(config)
    async with working(config, poll_interval_seconds=NEVER) as watched:
        await watched.asleep()
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'tasklib listener' AND datname = current_database()"
        )
        # Inserted while no connection listens: only the look after listening again can find it.
        db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
        task_id = await client.submit_task("ping", n=1)
        await watched.ended(task_id, "completed")


async def test_unknown_names_are_left_for_workers_that_know_them(config: Config, db: psycopg.Connection) -> None:
    tasklib.tasks.registry.register(_ping)
    client = AsyncClient(config)
    stranger = await client.submit_task("mail.send", registered_elsewhere=True, to="x")
    known = await client.submit_task("ping", n=1)
    async with working(config) as watched:
        await watched.ended(known, "completed")
    row = await client.get_task(stranger)
    assert row is not None
    assert (row.state, row.lease_token) == ("pending", 0)


async def test_worker_takes_only_its_queues_and_what_it_is_capable_of(config: Config) -> None:
    tasklib.tasks.registry.register(_ping)
    client = AsyncClient(config)
    wanted = await client.submit_many(
        [
            _ping.options(queue="a").bind(n=1),
            _ping.options(queue="a", required_capabilities=["gpu"]).bind(n=2),
            _ping.options(queue="a", required_capabilities=["ffmpeg", "gpu"]).bind(n=3),
        ]
    )
    others = await client.submit_many(
        [
            _ping.bind(n=4),
            _ping.options(queue="b").bind(n=5),
            _ping.options(queue="a", required_capabilities=["gpu", "tpu"]).bind(n=6),
        ]
    )
    async with working(config, queues=["a"], capabilities=["ffmpeg", "gpu"]) as watched:
        await watched.until(TaskEnded, count=3)
        assert {e.id for e in watched.all(TaskStarted)} == {str(i) for i in wanted}
    assert {t.id for t in await client.list_tasks(state="pending")} == set(others)


async def test_concurrency_of_one_runs_strictly_in_order(config: Config) -> None:
    order: list[int] = []

    @task
    async def step(n: int) -> None:
        order.append(n)

    client = AsyncClient(config)
    for n in range(20):
        await client.submit_task(step, n=n)
    await client.submit_many(step, [{"n": n} for n in range(20, 170)])
    async with working(config, concurrency=1) as watched:
        await watched.until(TaskEnded, count=170)
    assert order == list(range(170))


async def test_higher_priority_runs_first_and_old_age_raises_it(config: Config, db: psycopg.Connection) -> None:
    order: list[str] = []

    @task
    async def step(what: str) -> None:
        order.append(what)

    client = AsyncClient(config)
    for what, priority, waited in [
        ("young low", "low", 0),
        ("low counting as medium", "low", 700),
        ("low counting as high", "low", 1900),
        ("medium", "medium", 10),
        ("medium counting as high", "medium", 1300),
        ("high", "high", 1),
        ("fifty", 50, 0),
    ]:
        id_ = await client.submit_task(step, what=what, priority=priority)
        db.execute("UPDATE tasks SET scheduled_at = now() - %s * interval '1 s' WHERE id = %s", (waited, id_))
    async with working(config, concurrency=1) as watched:
        await watched.until(TaskEnded, count=7)
    assert order == [
        "low counting as high",
        "medium counting as high",
        "high",
        "fifty",
        "low counting as medium",
        "medium",
        "young low",
    ]


async def test_poll_never_waits_longer_than_its_interval_and_is_jittered(config: Config) -> None:
    wakeup = Wakeup(Notifier(config, ReconnectingConnection(config, "tasks")), 2.0, Events())
    pauses = [wakeup._poll_seconds() for _ in range(50)]
    assert max(pauses) <= 2.0
    assert pauses[0] <= 2.0 / 16
    assert len({round(p, 6) for p in pauses[10:]}) > 30
    await wakeup.sleep(-5.0)  # returns: what is overdue is not waited for

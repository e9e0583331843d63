"""How many connections a worker holds: three while it is idle, one more if it leads, and more only while it is busy."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tasklib import AsyncClient, Config, task
from tasklib.db import reconnecting
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingPool
from tasklib.events import LeadershipTaken, TaskEnded
from tasklib.store import fleet, schema
from tests.eventually import soon
from tests.worker.watching import working

SESSIONS = """SELECT application_name FROM pg_stat_activity
              WHERE datname = current_database() AND application_name LIKE 'tasklib %'
                AND application_name NOT LIKE 'tasklib client%' ORDER BY 1"""
IDLE = ["tasklib heartbeat", "tasklib listener", "tasklib worker tasks"]


def _sessions(db: psycopg.Connection) -> list[str]:
    return [name for (name,) in db.execute(SESSIONS).fetchall()]


@pytest.fixture(autouse=True)
def _closes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasklib.db.reconnecting._IDLE_SECONDS", 0.05)


@pytest.mark.parametrize("leads", [False, True], ids=["worker", "leader"])
async def test_idle_worker_holds_three_connections_and_the_leader_four(
    config: Config, db: psycopg.Connection, leads: bool
) -> None:
    @task
    async def work(n: int) -> None: ...

    if not leads:
        db.execute("INSERT INTO leadership (holder, expires_at) VALUES ('another', now() + interval '1 hour')")
    quick = config.with_changes(heartbeat_interval_seconds=1.0, sweep_interval_seconds=1.0)
    async with working(quick, poll_interval_seconds=1000.0) as watched:
        await AsyncClient(config).submit_many(work, [{"n": n} for n in range(300)])
        await watched.until(TaskEnded, count=300)
        if leads:
            await watched.until(LeadershipTaken)
        held = sorted([*IDLE, *(["tasklib worker maintenance"] if leads else [])])
        await soon(lambda: _sessions(db) == held, f"it holds {held}")


def _slow(db: psycopg.Connection) -> None:
    """Let a heartbeat wait for as long as the test holds this lock."""
    db.execute("""CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
                  BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$""")
    db.execute("CREATE TRIGGER hold AFTER UPDATE ON worker_registrations FOR EACH ROW EXECUTE FUNCTION hold()")
    db.execute("INSERT INTO workers (id) VALUES ('w')")


def _waits_for_the_lock() -> Query[bool | None]:
    return fleet.heartbeat("w", load=0, draining=False)


async def test_query_that_takes_long_does_not_hold_up_others(config: Config, db: psycopg.Connection) -> None:
    _slow(db)
    db.execute("SET lock_timeout = 0")
    pool = ReconnectingPool(config, "tasks", 3)
    db.execute("SELECT pg_advisory_lock(7)")
    long = asyncio.create_task(pool.run(_waits_for_the_lock()))
    await soon(lambda: _sessions(db) == ["tasklib worker tasks"], "the first one is on its way")
    assert await pool.run(schema.encoding())
    assert not long.done()
    assert len(_sessions(db)) == 2
    db.execute("SELECT pg_advisory_unlock(7)")
    assert await long is False
    await soon(lambda: len(_sessions(db)) == 1, "what is not needed is closed")
    assert await pool.run(schema.encoding())
    pool.drop()


async def test_queries_that_now_and_then_wait_for_a_moment_share_one_connection_and_many_that_wait_get_another(
    config: Config, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnecting, "_LONG_WAIT_SECONDS", 600)
    monkeypatch.setattr(reconnecting, "_LATELY_SECONDS", 600)
    pool = ReconnectingPool(config, "tasks", 3)
    await asyncio.gather(*(pool.run(schema.encoding()) for _ in range(1 + reconnecting._MANY_WAITS - 1)))
    assert len(_sessions(db)) == 1
    _slow(db)
    db.execute("SET lock_timeout = 0")
    db.execute("SELECT pg_advisory_lock(7)")
    long = [asyncio.create_task(pool.run(_waits_for_the_lock())) for _ in range(2)]
    await soon(lambda: len(_sessions(db)) == 2, "a fifth one has waited")
    db.execute("SELECT pg_advisory_unlock(7)")
    assert await asyncio.gather(*long) == [False, False]
    pool.drop()


async def test_no_more_connections_are_opened_than_allowed(config: Config, db: psycopg.Connection) -> None:
    _slow(db)
    pool = ReconnectingPool(config, "tasks", 2)
    db.execute("SELECT pg_advisory_lock(7)")
    long = [asyncio.create_task(pool.run(_waits_for_the_lock())) for _ in range(5)]
    await soon(lambda: len(_sessions(db)) == 2, "two are at work")
    db.execute("SELECT pg_advisory_unlock(7)")
    assert await asyncio.gather(*long) == [False] * 5
    assert len(_sessions(db)) <= 2
    pool.drop()


async def test_caller_that_stops_waiting_for_a_connection_takes_none(config: Config, db: psycopg.Connection) -> None:
    _slow(db)
    pool = ReconnectingPool(config, "tasks", 1)
    db.execute("SELECT pg_advisory_lock(7)")
    long = asyncio.create_task(pool.run(_waits_for_the_lock()))
    waiting = asyncio.create_task(pool.run(schema.encoding()))
    await asyncio.sleep(0)
    waiting.cancel()
    db.execute("SELECT pg_advisory_unlock(7)")
    assert await long is False
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await pool.run(schema.encoding())
    pool.drop()


async def test_outage_is_reported_once_however_many_connections_it_ends(config: Config, db: psycopg.Connection) -> None:
    told: list[str] = []
    pool = ReconnectingPool(
        config, "tasks", 3, on_lost=lambda *_: told.append("lost"), on_back=lambda _: told.append("back")
    )
    await asyncio.gather(*(pool.run(schema.encoding()) for _ in range(20)))
    db.execute("""SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
                  WHERE datname = current_database() AND application_name = 'tasklib worker tasks'""")
    for _ in range(2):
        await asyncio.gather(*(pool.run(schema.encoding()) for _ in range(20)))
    assert told == ["lost", "back"]
    pool.drop()

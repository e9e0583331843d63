"""A worker with `burst` goes on until a flow is through, not only until its first task is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import tasklib
from tasklib import Config, chain, task
from tasklib.backends.postgres import gates
from tasklib.backends.postgres.gates import GateFolds
from tests.server.conftest import Running
from tests.server.conftest import server as server  # the fixture
from tests.worker.watching import burst


@pytest.fixture(autouse=True)
def initialised(config: Config) -> None:
    tasklib.init(config)


@pytest.fixture
def late_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """No gate is counted before a worker has nothing else to do, and waits for that. Before `backend`."""
    idle, count = GateFolds.idle, GateFolds._count
    awaited = asyncio.Event()

    async def waits(self: GateFolds) -> None:
        awaited.set()
        await idle(self)
        awaited.clear()

    async def late(self: GateFolds) -> None:
        await awaited.wait()
        await count(self)

    monkeypatch.setattr(GateFolds, "idle", waits)
    monkeypatch.setattr(GateFolds, "_count", late)


@pytest.fixture(params=["postgresql", "http"])
def backend(request: pytest.FixtureRequest, config: Config) -> dict[str, Any]:
    """The options that let a worker come in through this backend."""
    if request.param == "postgresql":
        return {}
    start: Callable[..., Running] = request.getfixturevalue("server")
    return {"server": str(start(config))}


def states(db: psycopg.Connection) -> list[tuple[str, int]]:
    return db.execute("SELECT state, count(*) FROM tasks GROUP BY 1").fetchall()


async def test_a_burst_runs_a_whole_chain_however_long_its_gates_take(
    config: Config, db: psycopg.Connection, late_gates: None, backend: dict[str, Any]
) -> None:
    @task(name="burst.next")
    async def following(number: int) -> int:
        return number + 1

    run = await chain(following.s(0), following.s(), following.s(), following.s()).submit()
    await burst(config, **backend)
    assert states(db) == [("completed", 4)]
    assert await run.result(timeout=120) == 4


async def test_a_burst_waits_for_a_gate_that_another_session_has_locked(
    config: Config, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(config.database_url) as other:

        @task(name="burst.locking")
        async def locking() -> int:
            other.execute("SELECT FROM gates FOR UPDATE")
            return 1

        @task(name="burst.after")
        async def after(number: int) -> int:
            return number + 1

        def unlocked(tries: int) -> float:
            other.commit()
            return 0.0

        monkeypatch.setattr(gates, "conflict_pause", unlocked)
        await chain(locking.s(), after.s()).submit()
        await burst(config)
    assert states(db) == [("completed", 2)]

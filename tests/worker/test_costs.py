"""What a task costs the database: statements and commits, counted, not timed."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tasklib import AsyncClient, Config, task
from tasklib.db.reconnecting import ReconnectingConnection
from tests.eventually import eventually
from tests.worker.watching import burst

TASKS = 5_000


def _commits(db: psycopg.Connection) -> int:
    row = db.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert row is not None
    return int(row[0])


def _settled_commits(db: psycopg.Connection, least: int) -> int:
    """The statistics arrive when a backend has told them: wait until they have caught up."""
    eventually(lambda: _commits(db) >= least, f"{least} commits in the statistics")
    return _commits(db)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_hundred_slots_need_at_most_a_twentieth_of_a_statement_and_commit_per_task(
    config: Config, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "async":

        @task
        async def nothing(n: int) -> None: ...
    else:

        @task
        def nothing(n: int) -> None: ...

    await AsyncClient(config).submit_many(nothing, [{"n": n} for n in range(TASKS)])
    statements = 0
    original = ReconnectingConnection.run

    async def counted(self: ReconnectingConnection, query: object, *then: Any) -> object:
        nonlocal statements
        statements += 1
        return await original(self, query, *then)  # type: ignore[arg-type]

    monkeypatch.setattr(ReconnectingConnection, "run", counted)
    before = _commits(db)
    await burst(config, concurrency=100)
    assert db.execute("SELECT count(*) FROM tasks WHERE state = 'completed'").fetchone() == (TASKS,)
    assert statements / TASKS <= 0.05
    commits = _settled_commits(db, before + statements) - before
    assert statements <= commits, "every statement of the worker is a commit of its own"
    assert commits / TASKS <= 0.05

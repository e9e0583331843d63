"""The last progress a task reports is stored with its outcome, whatever that is; silent tasks pay nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from tasklib import AsyncClient, Config
from tasklib.backends.postgres.backend import PostgresBackend
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import TaskStarted
from tasklib.store.claim import Claimed
from tasklib.store.settle import Kept, Leased
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction
from tasklib.worker.attempt import Attempt
from tasklib.worker.progress import ProgressReports
from tests.worker import progress_tasks
from tests.worker.watching import burst, working


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the worker sends each of its statements."""
    sent: Counter[str] = Counter()
    original = ReconnectingConnection.run

    async def run(self: ReconnectingConnection, query: Query[Any], *then: Any) -> Any:
        sent[query.name] += 1
        return await original(self, query, *then)

    monkeypatch.setattr(ReconnectingConnection, "run", run)
    return sent


@pytest.mark.parametrize("function", progress_tasks.EVERYWHERE, ids=lambda f: f.name)
async def test_last_progress_of_a_short_task_is_stored_with_every_outcome(
    config: Config, function: TaskFunction[Any, Any]
) -> None:
    registry.register(function)
    async with AsyncClient(config) as client:
        ids = [await client.submit_task(function, how=how) for how in ("completed", "failed", "dead_letter")]
        await burst(config)
        rows = [await client.get_task(id_) for id_ in ids]
    assert [row and row.state for row in rows] == ["completed", "failed", "dead_letter"]
    assert [row and row.progress for row in rows] == [{"done": 40, "of": 40}] * 3


async def test_last_progress_of_a_cancelled_task_is_stored(config: Config) -> None:
    registry.register(progress_tasks.until_cancelled)
    async with AsyncClient(config) as client:
        async with working(config) as watched:
            await watched.worker._backend.notifier.listening.wait()
            id_ = await client.submit_task(progress_tasks.until_cancelled)
            await watched.until(TaskStarted)
            await client.cancel_task(id_)
            await watched.ended(id_, "cancelled")
        row = await client.get_task(id_)
    assert row is not None
    assert row.progress == "so far"


async def test_progress_of_a_batch_takes_one_statement_and_silence_takes_none(
    config: Config, statements: Counter[str]
) -> None:
    registry.register(progress_tasks.each)
    registry.register(progress_tasks.silent)
    async with AsyncClient(config) as client:
        await client.submit_many(progress_tasks.silent, [{} for _ in range(20)])
        await burst(config, concurrency=20)
        assert statements["progress"] == 0
        await client.submit_many(progress_tasks.each, [{"value": n} for n in range(20)])
        before = statements["complete"]
        await burst(config, concurrency=20)
        assert sorted(row.progress for row in await client.list_tasks(name="progress.each")) == list(range(20))
    assert 0 < statements["progress"] <= statements["complete"] - before


async def test_progress_that_cannot_be_stored_disturbs_no_other_attempt(config: Config, db: psycopg.Connection) -> None:
    registry.register(progress_tasks.each)
    registry.register(progress_tasks.in_a_transaction)
    db.execute("""ALTER TABLE tasks ADD CHECK (progress <> '"bad"' AND progress <> '{"of": 40, "done": 40}')""")
    async with AsyncClient(config) as client:
        ids = [await client.submit_task(progress_tasks.each, value=value) for value in ("good", "bad", "fine")]
        ids.append(await client.submit_task(progress_tasks.in_a_transaction, how="completed"))
        await burst(config)
        rows = [await client.get_task(id_) for id_ in ids]
    assert [row and (row.state, row.progress) for row in rows] == [
        ("completed", "good"),
        ("completed", None),
        ("completed", "fine"),
        ("completed", None),
    ]


@pytest.mark.parametrize(("times", "stored"), [(1, "last"), (1000, None)])
async def test_last_progress_is_stored_though_its_row_was_locked_for_a_moment(
    config: Config, monkeypatch: pytest.MonkeyPatch, times: int, stored: str | None
) -> None:
    registry.register(progress_tasks.each)
    original, locked = PostgresBackend.progress, iter(range(times))

    async def progress(self: PostgresBackend, worker_id: str, reports: Sequence[tuple[Leased, str]]) -> Kept:
        if next(locked, None) is not None:
            return Kept(set(), {lease.id for lease, _ in reports})
        return await original(self, worker_id, reports)

    monkeypatch.setattr(PostgresBackend, "progress", progress)
    async with AsyncClient(config) as client:
        id_ = await client.submit_task(progress_tasks.each, value="last")
        await burst(config)
        row = await client.get_task(id_)
    assert row is not None
    assert (row.state, row.progress) == ("completed", stored), "and one that stays locked completes all the same"


class SlowBackend:
    """Writes when it is told to."""

    def __init__(self) -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self.written: list[str] = []

    async def progress(self, worker_id: str, reports: Sequence[tuple[Leased, str]]) -> Kept:
        self.asked.set()
        await self.go_on.wait()
        self.written += [text for _, text in reports]
        return Kept({lease.id for lease, _ in reports})


async def test_report_under_way_is_written_before_the_last_one_and_not_again() -> None:
    backend = SlowBackend()
    reports = ProgressReports(backend)
    claimed = Claimed._make(["0190-1", "progress.silent", *[None] * (len(Claimed._fields) - 2)])
    attempt = Attempt(claimed, progress_tasks.silent, "w", 0.0, 0.0)
    reports.report(attempt, "1")
    writing = asyncio.create_task(reports.write_for_ever(lambda: [attempt]))
    async with asyncio.timeout(120):
        await backend.asked.wait()
        reports.report(attempt, "2")
        attempt.settled = True
        last = asyncio.create_task(reports.write_last([attempt]))
        await asyncio.sleep(0)
        backend.go_on.set()
        await last
        await reports.write_last([attempt])
    writing.cancel()
    assert backend.written == ["1", "2"]
    reports.report(attempt, "3")
    assert reports.newest(attempt) is None, "it is over"

"""Workers that die, freeze or lose the database: nothing is lost, nothing is recorded twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, current_task, task
from tasklib.events import DatabaseBack, LeaseLost, ResultRefused, TaskStarted
from tasklib.store import claim, maintenance, settle
from tasklib.store.claim import Served
from tasklib.store.fleet import lead
from tasklib.tasks import registry
from tests.eventually import eventually
from tests.worker import fleet_tasks
from tests.worker.fleet import Fleet, fleet_of
from tests.worker.watching import burst, working

SHORT = {
    "lock_timeout_seconds": 3.0,
    "sweep_interval_seconds": 0.3,
    "leader_lease_seconds": 2.0,
    "heartbeat_interval_seconds": 0.5,
    "heartbeat_timeout_seconds": 3.0,
    "retry_jitter": 0.0,
}


@pytest.fixture
def fleet(database_url: str, db: psycopg.Connection, tmp_path: Path) -> Iterator[Fleet]:
    for function in (fleet_tasks.note, fleet_tasks.nothing, fleet_tasks.hold):
        registry.register(function)
    with fleet_of(database_url, db, tmp_path) as fleet:
        yield fleet


@pytest.mark.long
def test_ten_thousand_tasks_through_four_processes_each_complete_once(fleet: Fleet, config: Config) -> None:
    with Client(config) as client:
        client.submit_many(fleet_tasks.nothing, [{"number": n} for n in range(9_000)])
        client.submit_many(fleet_tasks.note, [{"number": n} for n in range(1_000)])
    workers = [fleet.start(concurrency=25, burst=True) for _ in range(4)]
    for worker in workers:
        assert worker.wait(timeout=100) == 0, fleet.said(worker)
    assert fleet.value("SELECT count(*) FROM tasks WHERE state = 'completed' AND lease_token = 1") == 10_000
    assert fleet.value("SELECT count(*) FROM tasks") == 10_000
    assert fleet.value("SELECT count(DISTINCT task) FROM notes") == fleet.value("SELECT count(*) FROM notes") == 1_000
    said = [fleet.said(w) for w in workers]
    assert sum("TaskEnded" in s for s in said) == 4, "every process had its share"


def test_killed_worker_loses_its_leases_and_others_finish_the_work(fleet: Fleet, config: Config) -> None:
    with Client(config) as client:
        ids = client.submit_many(fleet_tasks.hold, [{"until": "go"} for _ in range(5)])
        victim = fleet.start(SHORT, concurrency=5)
        fleet.wait_for_value(5, "SELECT count(*) FROM notes WHERE what = 'started'")
        victim.kill()
        fleet.start(SHORT, concurrency=5)
        fleet.wait_for_value(5, "SELECT count(*) FROM tasks WHERE state = 'running' AND lease_token = 2")
        fleet.db.execute("INSERT INTO notes (what) VALUES ('go')")
        results = {client.wait_for(i, timeout=120) for i in ids}
        rows = [client.get_task(i) for i in ids]
    assert results == {f"by {fleet.value('SELECT pid FROM notes WHERE token = 2 LIMIT 1')}"}
    for row in rows:
        assert row is not None
        assert (row.retry_count, row.crash_count) == (0, 1), "a lost worker uses no retry and is counted"
        assert (row.history or [])[0]["outcome"] == "lost"


def test_frozen_worker_is_told_that_its_lease_is_gone_and_its_result_is_refused(fleet: Fleet, config: Config) -> None:
    with Client(config) as client:
        task_id = client.submit_task(fleet_tasks.hold, until="go")
        frozen = fleet.start(SHORT, concurrency=1)
        fleet.wait_for_value(1, "SELECT count(*) FROM notes WHERE what = 'started'")
        frozen.send_signal(signal.SIGSTOP)
        other = fleet.start(SHORT, concurrency=1)
        fleet.wait_for_value(2, "SELECT count(*) FROM notes WHERE what = 'started'")
        fleet.db.execute("INSERT INTO notes (what) VALUES ('go')")
        assert client.wait_for(task_id, timeout=120) == f"by {other.pid}"
        before = client.get_task(task_id)
        frozen.send_signal(signal.SIGCONT)
        fleet.wait(lambda: "ResultRefused" in fleet.said(frozen), "the frozen worker hears of it")
        assert client.get_task(task_id) == before


async def test_late_result_of_a_lost_lease_changes_nothing(config: Config, db: psycopg.Connection) -> None:
    """The same at the level of statements: the old holder's every write finds no row."""

    @task
    async def work() -> None: ...

    from tasklib.db.database import AsyncDatabase

    database = AsyncDatabase(config)
    client = AsyncClient(config)
    await client.submit_task(work)
    served = Served(["work"])
    terms = {"lease_seconds": 600, "medium_after": 600, "high_after": 1200}
    [first] = await database.run(claim.claim(served, 1, "one", **terms))
    db.execute("UPDATE tasks SET locked_until = now() - interval '1 s'")
    term = await database.run(lead("leader", 60))
    assert term is not None
    assert [state for _, _, state in await database.run(maintenance.rescue(term, 3, 10))] == ["failed"]
    [second] = await database.run(claim.claim(served, 1, "two", **terms))
    assert (first.token, second.token) == (1, 2)
    old = settle.Lease(first.id, first.token)
    before = db.execute("SELECT * FROM tasks").fetchall()
    assert await database.run(settle.complete([settle.Completion(old, '{"value": 1}')], "two")) == set()
    assert await database.run(settle.fail([settle.Failure(old, "late", "error", 1.0)], "two", 3)) == {}
    assert await database.run(settle.release([old], "two")) == {}
    assert await database.run(settle.extend([old], "two", 600)) == set()
    await database.run(settle.progress([(old, "1")], "two"))
    assert db.execute("SELECT * FROM tasks").fetchall() == before


async def test_right_token_from_another_worker_changes_nothing(config: Config, db: psycopg.Connection) -> None:
    """As after a failover that lost a claim: the next one has the same token again."""
    from tasklib.db.database import AsyncDatabase

    db.execute("INSERT INTO tasks (name) VALUES ('work')")
    database = AsyncDatabase(config)
    terms = {"lease_seconds": 600, "medium_after": 600, "high_after": 1200}
    [row] = await database.run(claim.claim(Served(["work"]), 1, "one", **terms))
    lease = settle.Lease(row.id, row.token)
    before = db.execute("SELECT * FROM tasks").fetchall()
    assert await database.run(settle.complete([settle.Completion(lease, "1")], "two")) == set()
    assert await database.run(settle.fail([settle.Failure(lease, "no", "error", 1.0)], "two", 3)) == {}
    assert await database.run(settle.release([lease], "two")) == {}
    assert await database.run(settle.stop([(lease, "no")], "two")) == set()
    assert await database.run(settle.extend([lease], "two", 600)) == set()
    await database.run(settle.progress([(lease, "1")], "two"))
    assert db.execute("SELECT * FROM tasks").fetchall() == before
    assert await database.run(settle.complete([settle.Completion(lease, "1")], "one")) == {row.id}


async def test_expired_lease_is_not_taken_back_by_a_heartbeat(config: Config, db: psycopg.Connection) -> None:
    from tasklib.db.database import AsyncDatabase

    @task
    async def work() -> None: ...

    await AsyncClient(config).submit_task(work)
    database = AsyncDatabase(config)
    [row] = await database.run(
        claim.claim(Served(["work"]), 1, "one", lease_seconds=600, medium_after=600, high_after=1200)
    )
    db.execute("UPDATE tasks SET locked_until = now() - interval '1 s'")
    assert await database.run(settle.extend([settle.Lease(row.id, row.token)], "one", 600)) == set()


async def test_lease_of_a_long_task_is_extended_even_while_it_blocks_the_loop(
    config: Config, db: psycopg.Connection
) -> None:
    def lease_ends() -> Any:
        return (db.execute("SELECT locked_until FROM tasks").fetchone() or (None,))[0]

    @task
    async def long() -> str:
        before = lease_ends()
        eventually(lambda: lease_ends() > before, "the lease is extended")  # it blocks the loop: that is the offence
        return "kept"

    client = AsyncClient(config)
    task_id = await client.submit_task(long)
    async with working(config.with_changes(lock_timeout_seconds=6.0)) as watched:
        await watched.ended(task_id, "completed")
    assert await client.wait_for(task_id) == "kept"


async def test_attempt_stops_when_its_lease_is_taken(config: Config, db: psycopg.Connection) -> None:
    stopped = asyncio.Event()

    @task
    async def long() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            assert current_task().cancelled
            stopped.set()

    client = AsyncClient(config)
    task_id = await client.submit_task(long)
    async with working(config.with_changes(lock_timeout_seconds=1.5, sweep_interval_seconds=600)) as watched:
        await watched.until(TaskStarted)
        db.execute("UPDATE tasks SET lease_token = lease_token + 1, worker_id = 'thief'")
        await watched.until(LeaseLost)
        await watched.until(ResultRefused)
        assert stopped.is_set()
        assert watched.worker._settler.stale_results == 1
    row = await client.get_task(task_id)
    assert row is not None
    assert (row.state, row.worker_id) == ("running", "thief")


async def test_crash_limit_sends_a_poisonous_task_to_the_dead_letters(config: Config, db: psycopg.Connection) -> None:
    from tasklib.db.database import AsyncDatabase

    @task(max_retries=50)
    async def poison() -> None: ...

    client = AsyncClient(config)
    task_id = await client.submit_task(poison)
    database = AsyncDatabase(config)
    term = await database.run(lead("leader", 60))
    assert term is not None
    states = []
    for _ in range(3):
        [claimed] = await database.run(
            claim.claim(Served(["poison"]), 1, "w", lease_seconds=600, medium_after=600, high_after=1200)
        )
        await database.run(settle.begin([(claimed, False)], "w"))
        db.execute("UPDATE tasks SET locked_until = now() - interval '1 s'")
        states += [state for _, _, state in await database.run(maintenance.rescue(term, config.crash_limit, 10))]
    assert states == ["failed", "failed", "dead_letter"]
    row = await client.get_task(task_id)
    assert row is not None
    assert "given up as poison after 3 crashes" in str(row.error)
    assert [h["outcome"] for h in row.history or []] == ["lost"] * 3


@pytest.mark.direct(reason="behind a pooler it doesn't even notice")
async def test_worker_survives_its_connections_being_terminated(config: Config, db: psycopg.Connection) -> None:
    @task
    async def work(n: int) -> int:
        return n

    client = AsyncClient(config)
    async with working(config) as watched:
        for n in range(3):
            before = len(watched.all(DatabaseBack))
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name LIKE 'tasklib %' AND datname = current_database()"
            )
            task_id = await AsyncClient(config).submit_task(work, n=n)
            await watched.ended(task_id, "completed")
            await watched.until(DatabaseBack, count=before + 1)
    assert len(await client.list_tasks(state="completed")) == 3


async def test_result_is_stored_though_the_database_was_away_when_it_came(
    config: Config, db: psycopg.Connection, server_url: str
) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @task
    async def work() -> str:
        started.set()
        await go_on.wait()
        return "survived"

    client = AsyncClient(config)
    task_id = await client.submit_task(work)
    name = db.info.dbname
    async with working(config) as watched:
        await started.wait()
        with psycopg.connect(server_url, autocommit=True) as admin:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')  # type: ignore[call-overload]
            db.close()
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            go_on.set()
            from tasklib.events import DatabaseLost

            await watched.until(DatabaseLost, lambda e: e.purpose == "tasks")
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')  # type: ignore[call-overload]
        await watched.ended(task_id, "completed")
    assert await AsyncClient(config).wait_for(task_id) == "survived"


async def test_settlement_whose_answer_was_lost_is_not_counted_as_stale(config: Config) -> None:
    """The link breaks after the commit: the retry finds the row settled, by us."""
    from tasklib.db.reconnecting import ReconnectingConnection
    from tasklib.errors import DatabaseUnavailable

    @task
    async def work() -> None: ...

    client = AsyncClient(config)
    task_id = await client.submit_task(work)
    original, broken = ReconnectingConnection.run, []

    async def run(self: ReconnectingConnection, query: object, *then: Any) -> object:
        answer = await original(self, query, *then)  # type: ignore[arg-type]
        if query.name == "complete" and not broken:  # type: ignore[attr-defined]
            broken.append(True)
            raise DatabaseUnavailable("the link broke after the commit")
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReconnectingConnection, "run", run)
        watched = await burst(config)
    assert broken
    assert not watched.all(ResultRefused)
    assert (await watched.ended(task_id)).state == "completed"


def test_worker_outlives_a_restart_of_postgresql(tmp_path: Path) -> None:
    if os.environ.get("TASKLIB_TEST_DATABASE_URL"):
        pytest.skip("only a server of our own may be restarted")
    from tasklib.embedded import EmbeddedPostgres
    from tasklib.migrations import migrate

    for function in (fleet_tasks.note, fleet_tasks.hold):
        registry.register(function)
    with EmbeddedPostgres() as server:
        migrate(Config(server.url()))
        with psycopg.connect(server.url(), autocommit=True) as db, fleet_of(server.url(), db, tmp_path) as fleet:
            worker = fleet.start(concurrency=4)
            client = Client(server.url())
            first = client.submit_task(fleet_tasks.note, number=1)
            assert client.wait_for(first, timeout=120) == 1
            server.restart("immediate")
            second = client.submit_task(fleet_tasks.note, number=2)
            assert client.wait_for(second, timeout=120) == 2
            server.kill()
            server.start()
            third = client.submit_task(fleet_tasks.note, number=3)
            assert client.wait_for(third, timeout=120) == 3
            assert worker.poll() is None, fleet.said(worker)
            client.close()

"""Several workers, one leader: killed, stopped, cut off and restarted; nothing is stuck, and two never lead at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, task
from tasklib.db.database import Database
from tasklib.events import LeaseLost, TaskStarted, WorkerRenewed, WorkerStopped
from tasklib.store import fleet as fleet_store
from tasklib.tasks import registry
from tests.eventually import soon
from tests.worker import fleet_tasks
from tests.worker.fleet import Fleet, fleet_of
from tests.worker.watching import working

ONE_SECOND = {
    "heartbeat_interval_seconds": 1.0,
    "heartbeat_timeout_seconds": 3.0,
    "sweep_interval_seconds": 0.5,
    "leader_lease_seconds": 2.0,
    "base_retry_delay_seconds": 0.0,
    "retry_jitter": 0.0,
}


@pytest.fixture
def fleet(database_url: str, db: psycopg.Connection, tmp_path: Path) -> Iterator[Fleet]:
    for function in vars(fleet_tasks).values():
        if isinstance(function, type(fleet_tasks.note)):
            registry.register(function)
    with fleet_of(database_url, db, tmp_path) as fleet:
        yield fleet


def _pid_of_leader(fleet: Fleet) -> int | None:
    found = fleet.value(
        "SELECT pid FROM workers JOIN leadership ON holder = workers.id WHERE expires_at > now() AND status <> 'dead'"
    )
    return int(found) if found is not None else None


def test_worker_is_listed_while_it_lives_and_gone_after_it_stopped(fleet: Fleet, config: Config) -> None:
    worker = fleet.start(ONE_SECOND, concurrency=7, queues=["a", "b"], capabilities=["gpu"])
    fleet.wait_for_value("active", "SELECT status FROM workers")
    database = Database(config)
    [info] = database.run(fleet_store.workers())
    assert (info.capacity, info.queues, info.capabilities, info.pid) == (7, ["a", "b"], ["gpu"], worker.pid)
    assert "hold" in info.names
    first = info.last_heartbeat
    fleet.wait(lambda: database.run(fleet_store.workers())[0].last_heartbeat > first, "it beats")
    database.close()


def test_killed_with_fifty_running_tasks_all_are_recovered_before_their_leases_end(
    fleet: Fleet, config: Config
) -> None:
    """By the missing heartbeats: the leases themselves would last ten minutes."""
    with Client(config) as client:
        client.submit_many(fleet_tasks.hold, [{"until": "go"} for _ in range(50)])
        victim = fleet.start(ONE_SECOND, concurrency=50)
        fleet.wait_for_value(50, "SELECT count(*) FROM tasks WHERE state = 'running'")
        survivor = fleet.start(ONE_SECOND, concurrency=50)
        fleet.wait_for_value(2, "SELECT count(*) FROM workers")
        victim.kill()
        fleet.wait_for_value(50, "SELECT count(*) FROM tasks WHERE state = 'running' AND lease_token = 2")
        fleet.wait_for_value("dead", "SELECT status FROM workers WHERE pid = %s", victim.pid)
        fleet.db.execute("INSERT INTO notes (what) VALUES ('go')")
        fleet.wait_for_value(50, "SELECT count(*) FROM tasks WHERE state = 'completed' AND crash_count = 1")
        assert survivor.poll() is None


def test_killed_leader_is_followed_by_another_with_a_higher_term(fleet: Fleet) -> None:
    workers = {w.pid: w for w in (fleet.start(ONE_SECOND) for _ in range(3))}
    fleet.wait(lambda: _pid_of_leader(fleet) in workers, "somebody leads")
    term = fleet.value("SELECT term FROM leadership")
    first = _pid_of_leader(fleet)
    assert first is not None
    workers.pop(first).kill()
    fleet.wait(lambda: _pid_of_leader(fleet) in workers, "another leads")
    assert fleet.value("SELECT term FROM leadership") > term


def test_frozen_leader_is_replaced_and_does_nothing_when_it_thaws(fleet: Fleet, config: Config) -> None:
    workers = {w.pid: w for w in (fleet.start(ONE_SECOND) for _ in range(3))}
    fleet.wait(lambda: _pid_of_leader(fleet) in workers, "somebody leads")
    frozen = _pid_of_leader(fleet)
    assert frozen is not None
    os.kill(frozen, signal.SIGSTOP)
    others = set(workers) - {frozen}
    fleet.wait(lambda: _pid_of_leader(fleet) in others, "another leads")
    declared = "SELECT reported_status FROM workers WHERE pid = %s ORDER BY started_at LIMIT 1"
    fleet.wait_for_value("dead", declared, frozen)
    os.kill(frozen, signal.SIGCONT)
    fleet.wait(lambda: "WorkerRenewed" in fleet.said(workers[frozen]), "it begins anew under another id")
    fleet.wait_for_value(3, "SELECT count(*) FROM workers WHERE status = 'active'")
    assert _pid_of_leader(fleet) in others
    with Client(config) as client:
        assert client.wait_for(client.submit_task(fleet_tasks.nothing, number=5), timeout=120) == 5


@pytest.mark.long
def test_task_that_takes_its_worker_down_three_times_is_poison_and_its_neighbours_finish(
    fleet: Fleet, config: Config
) -> None:
    with Client(config) as client:
        poison = client.submit_task(fleet_tasks.collapse)
        neighbours = client.submit_many(fleet_tasks.note, [{"number": n} for n in range(20)])
        stop = threading.Event()

        def keep_three_running() -> None:
            workers: list[subprocess.Popen[bytes]] = []
            while not stop.wait(0.05):
                workers = [w for w in workers if w.poll() is None]
                while len(workers) < 3:
                    workers.append(fleet.start(ONE_SECOND, concurrency=2))

        supervisor = threading.Thread(target=keep_three_running)
        supervisor.start()
        try:
            fleet.wait_for_value("dead_letter", "SELECT state FROM tasks WHERE id = %s", poison)
            assert sorted(client.wait_for(i, timeout=120) for i in neighbours) == list(range(20))
        finally:
            stop.set()
            supervisor.join()
        row = client.get_task(poison)
    assert row is not None
    assert row.crash_count == 3
    *earlier, verdict = str(row.error).splitlines()
    assert verdict.endswith("; given up as poison after 3 crashes")
    assert [line.partition(",")[0] for line in earlier] == ["attempt 1", "attempt 2"]
    # Two workers went down with it; the third time it was alone in a child, and no other task was lost.
    assert [h["outcome"] for h in row.history or []] == ["lost", "lost", "crash"]


def test_task_that_holds_the_gil_does_not_cost_the_lease(fleet: Fleet, config: Config) -> None:
    """Two seconds cost two heartbeats, long before the lease ends."""
    patient = {**ONE_SECOND, "heartbeat_timeout_seconds": 60.0}
    with Client(config) as client:
        fleet.start(patient, concurrency=1)
        other = fleet.start(patient, concurrency=1)
        fleet.wait_for_value(2, "SELECT count(*) FROM workers")
        task_id = client.submit_task(fleet_tasks.hold_the_gil, seconds=2)
        assert client.wait_for(task_id, timeout=120) == "held"
        row = client.get_task(task_id)
        assert row is not None
        assert (row.lease_token, row.crash_count) == (1, 0)
        assert other.poll() is None
    assert fleet.value("SELECT count(*) FROM workers WHERE status = 'dead'") == 0


async def test_worker_asked_to_drain_finishes_what_it_runs_and_stops(config: Config) -> None:
    go_on = asyncio.Event()

    @task
    async def work() -> str:
        await go_on.wait()
        return "finished"

    client = AsyncClient(config)
    task_id = await client.submit_task(work)
    database = Database(config)
    async with working(config) as watched:
        await watched.worker._backend.notifier.listening.wait()
        await watched.until(TaskStarted)
        assert await asyncio.to_thread(database.run, fleet_store.drain(watched.worker.id, by="test"))
        await soon(lambda: database.run(fleet_store.workers())[0].status == "draining")
        waiting = await client.submit_task(work)
        go_on.set()
        await watched.until(WorkerStopped)
    assert await client.wait_for(task_id) == "finished"
    row = await client.get_task(waiting)
    assert row is not None
    assert row.state == "pending"
    assert database.run(fleet_store.workers()) == []
    assert not database.run(fleet_store.drain("nobody", by="test"))
    database.close()


async def test_live_worker_that_was_declared_dead_drops_its_work_and_begins_anew(
    config: Config, db: psycopg.Connection
) -> None:
    @task
    async def forever() -> None:
        await asyncio.Event().wait()

    client = AsyncClient(config)
    await client.submit_task(forever)
    quick = config.with_changes(
        heartbeat_interval_seconds=0.2, heartbeat_timeout_seconds=60, sweep_interval_seconds=600
    )
    async with working(quick) as watched:
        await watched.until(TaskStarted)
        old = watched.worker.id
        db.execute("UPDATE workers SET reported_status = 'dead'")
        renewed = await watched.until(WorkerRenewed)
        await watched.until(LeaseLost)
        assert renewed.old_id == old
        assert watched.worker.id == renewed.worker_id != old
        await soon(lambda: db.execute("SELECT count(*) FROM workers WHERE status = 'active'").fetchone() == (1,))


async def test_sleeping_worker_that_was_declared_dead_is_woken_for_the_next_task(
    config: Config, db: psycopg.Connection
) -> None:
    @task
    async def nothing() -> None: ...

    quick = config.with_changes(
        heartbeat_interval_seconds=0.2,
        heartbeat_timeout_seconds=60,
        sweep_interval_seconds=600,
        poll_interval_seconds=300,
    )
    async with AsyncClient(config) as client, working(quick) as watched:
        await soon(lambda: db.execute("SELECT FROM workers WHERE asleep").fetchall() != [])
        db.execute("UPDATE workers SET reported_status = 'dead'")
        await watched.until(WorkerRenewed)
        await client.wait_for(await client.submit_task(nothing), timeout=120)


@pytest.mark.long
@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
def test_restart_of_the_database_around_the_leader_loses_nothing(tmp_path: Path, how: str) -> None:
    if os.environ.get("TASKLIB_TEST_DATABASE_URL"):
        pytest.skip("only a server of our own may be restarted")
    from tasklib.embedded import EmbeddedPostgres
    from tasklib.migrations import migrate

    for function in (fleet_tasks.hold, fleet_tasks.nothing):
        registry.register(function)
    with EmbeddedPostgres() as server:
        migrate(Config(server.url()))
        db = psycopg.connect(server.url(), autocommit=True)
        with fleet_of(server.url(), db, tmp_path) as fleet, Client(server.url()) as client:
            victim = fleet.start(ONE_SECOND, concurrency=4)
            ids = client.submit_many(fleet_tasks.nothing, [{"number": n} for n in range(50)])
            orphan = client.submit_task(fleet_tasks.hold, until="never", max_retries=0)
            fleet.wait_for_value(1, "SELECT count(*) FROM tasks WHERE state = 'running' AND name = 'hold'")
            fleet.start(ONE_SECOND, concurrency=4)
            fleet.start(ONE_SECOND, concurrency=4)
            victim.kill()
            if how == "kill":
                server.kill()
                server.start()
            else:
                server.restart(how)  # type: ignore[arg-type]
            fleet.db = psycopg.connect(server.url(), autocommit=True)
            fleet.wait_for_value(2, "SELECT lease_token FROM tasks WHERE id = %s", orphan)  # it runs again
            assert sorted(client.wait_for(i, timeout=120) for i in ids) == list(range(50))
            fleet.db.close()

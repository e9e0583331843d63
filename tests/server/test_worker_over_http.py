"""The worker's loop through a server: the same behaviour as with a database of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tasklib import AsyncClient, Config, Retry, Worker, current_task, task
from tasklib.errors import ConfigError
from tasklib.events import (
    DatabaseBack,
    DatabaseLost,
    DutyFailed,
    Event,
    ResultRefused,
    SchedulesSynced,
    TaskStarted,
    WorkerRenewed,
)
from tasklib.tasks import registry
from tests.eventually import soon
from tests.server.conftest import Running
from tests.server.processes import ServerProcess
from tests.worker import process_tasks
from tests.worker.watching import burst, working

CLAIM_IS_HELD = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"


@pytest.fixture(params=["postgresql", "http"])
def backend(request: pytest.FixtureRequest, server: Callable[..., Running], config: Config) -> dict[str, Any]:
    """The options that let a worker come in through this backend."""
    return {} if request.param == "postgresql" else {"server": str(server(config))}


def row(db: psycopg.Connection, columns: str = "state") -> tuple[Any, ...]:
    found = db.execute(f"SELECT {columns} FROM tasks".encode()).fetchone()
    assert found is not None
    return found


async def test_async_sync_and_process_tasks_run(
    config: Config, db: psycopg.Connection, backend: dict[str, Any]
) -> None:
    @task
    async def over_async(n: int) -> int:
        return n + 1

    @task
    def over_sync(text: str) -> dict[str, str]:
        return {"back": text[::-1]}

    registry.register(process_tasks.add)
    client = AsyncClient(config)
    one = await client.submit_task(over_async, n=2**70)
    two = await client.submit_task(over_sync, text='äö"\\\n')
    three = await client.submit_task(process_tasks.add, a=20, b=22)
    await burst(config, modules=["tests.worker.process_tasks"], **backend)
    assert await client.wait_for(one, timeout=120) == 2**70 + 1
    assert await client.wait_for(two, timeout=120) == {"back": '\n\\"öä'}
    assert (await client.wait_for(three, timeout=120))["sum"] == 42


async def test_requests_of_a_worker_are_not_logged_and_those_of_its_tasks_are(
    config: Config, server: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    address = str(server(config))

    @task
    async def over_calling() -> int:
        async with httpx.AsyncClient() as web:
            return (await web.get(f"{address}/health/live")).status_code

    client = AsyncClient(config)
    one = await client.submit_task(over_calling)
    with caplog.at_level(logging.INFO):
        await burst(config, server=address)
    assert await client.wait_for(one, timeout=120) == 200
    requests = [record.getMessage() for record in caplog.records if record.name == "httpx"]
    assert len(requests) == 1
    assert "/health/live" in requests[0]


async def test_thousands_of_tasks_each_run_once(
    config: Config, db: psycopg.Connection, backend: dict[str, Any]
) -> None:
    ran: list[int] = []

    @task
    async def over_counted(n: int) -> int:
        ran.append(n)
        return n

    await AsyncClient(config).submit_many(over_counted, [{"n": n} for n in range(3000)])
    await burst(config, concurrency=50, **backend)
    assert sorted(ran) == list(range(3000))
    assert db.execute("SELECT count(*), max(lease_token) FROM tasks WHERE state = 'completed'").fetchone() == (3000, 1)


async def test_failure_retry_rejection_and_unstorable_result(
    config: Config, db: psycopg.Connection, backend: dict[str, Any]
) -> None:
    @task(max_retries=1)
    async def over_failing() -> None:
        raise ValueError("no luck")

    @task
    async def over_later() -> None:
        raise Retry(in_=1000, reason="not yet")

    @task(max_retries=0)
    async def over_nul() -> str:
        return "\x00"

    @task(non_retriable=(KeyError,))
    async def over_hopeless() -> None:
        raise KeyError("x")

    client = AsyncClient(config)
    for function in (over_failing, over_later, over_nul, over_hopeless):
        await client.submit_task(function)
    await burst(config, **backend)
    rows = {r[0]: r[1:] for r in db.execute("SELECT name, state, error, history FROM tasks").fetchall()}
    assert rows["over_failing"][0] == "failed"
    assert "ValueError: no luck" in rows["over_failing"][1]
    assert rows["over_later"][0] == "failed"
    assert rows["over_later"][2][0]["outcome"] == "retry"
    assert (rows["over_nul"][0], rows["over_hopeless"][0]) == ("dead_letter", "dead_letter")
    assert "ResultNotStorable" in rows["over_nul"][1]


async def test_timeout_ends_the_attempt(config: Config, db: psycopg.Connection, backend: dict[str, Any]) -> None:
    @task(timeout_seconds=1, max_retries=0)
    async def over_endless() -> None:
        await asyncio.Event().wait()

    await AsyncClient(config).submit_task(over_endless)
    await burst(config, **backend)
    assert row(db, "state, history->0->>'outcome'") == ("dead_letter", "timeout")


async def test_idle_worker_is_woken_by_a_task(config: Config, backend: dict[str, Any]) -> None:
    @task
    async def over_woken() -> str:
        return "awake"

    client = AsyncClient(config)
    # A poll so rare that only a notification can be the reason.
    async with working(config.with_changes(poll_interval_seconds=1000), names=["over_woken"], **backend) as watched:
        for _ in range(3):
            id_ = await client.submit_task(over_woken)
            await watched.ended(id_, "completed")


async def test_cancel_request_reaches_the_running_task(
    config: Config, db: psycopg.Connection, backend: dict[str, Any]
) -> None:
    @task
    async def over_cancelled() -> None:
        await asyncio.Event().wait()

    client = AsyncClient(config)
    id_ = await client.submit_task(over_cancelled)
    async with working(config, **backend) as watched:
        await watched.until(TaskStarted)
        await client.cancel_task(id_)
        await watched.ended(id_, "cancelled")
    assert row(db) == ("cancelled",)


async def test_progress_is_stored(config: Config, db: psycopg.Connection, backend: dict[str, Any]) -> None:
    seen = asyncio.Event()

    @task
    async def over_progress() -> None:
        current_task().progress({"half": True})
        await seen.wait()

    await AsyncClient(config).submit_task(over_progress)
    async with working(config, **backend) as watched:
        await watched.until(TaskStarted)
        await soon(lambda: row(db, "progress")[0] is not None)
        seen.set()


async def test_drain_finishes_what_runs_and_releases_the_rest(
    config: Config, db: psycopg.Connection, backend: dict[str, Any]
) -> None:
    go_on = asyncio.Event()

    @task
    async def over_draining() -> None:
        await go_on.wait()

    client = AsyncClient(config)
    await client.submit_task(over_draining)
    async with working(config, concurrency=1, **backend) as watched:
        await watched.until(TaskStarted)
        await client.drain_worker(watched.worker.id)
        await soon(lambda: db.execute("SELECT status FROM workers").fetchone() == ("draining",))
        await client.submit_task(over_draining)
        go_on.set()
        assert watched.finished is not None
        async with asyncio.timeout(120):
            await watched.finished
    states = sorted(r[0] for r in db.execute("SELECT state FROM tasks").fetchall())
    assert states == ["completed", "pending"]
    assert db.execute("SELECT count(*) FROM workers").fetchone() == (0,), "it has left"


async def test_second_stop_gives_running_work_back(
    config: Config, db: psycopg.Connection, backend: dict[str, Any]
) -> None:
    @task
    async def over_stopped() -> None:
        await asyncio.Event().wait()

    await AsyncClient(config).submit_task(over_stopped)
    async with working(config, **backend) as watched:
        await watched.until(TaskStarted)
    assert row(db, "state, retry_count") == ("pending", 0)


async def test_worker_declared_dead_begins_anew(
    config: Config, db: psycopg.Connection, backend: dict[str, Any]
) -> None:
    @task
    async def over_renewed() -> str:
        return "ran"

    async with working(config, **backend) as watched:
        old = watched.worker.id
        db.execute("UPDATE workers SET reported_status = 'dead'")
        assert watched.worker._membership is not None
        watched.worker._membership.look()
        renewed = await watched.until(WorkerRenewed)
        assert renewed.old_id == old
        id_ = await AsyncClient(config).submit_task(over_renewed)
        await watched.ended(id_, "completed")
        assert watched.worker.id != old


async def test_result_of_a_lost_lease_is_refused(
    config: Config, db: psycopg.Connection, backend: dict[str, Any]
) -> None:
    go_on = asyncio.Event()

    @task
    async def over_thief() -> str:
        await go_on.wait()
        return "late"

    await AsyncClient(config).submit_task(over_thief)
    async with working(config, **backend) as watched:
        await watched.until(TaskStarted)
        db.execute("UPDATE tasks SET lease_token = lease_token + 1, worker_id = 'thief'")
        go_on.set()
        await watched.until(ResultRefused)
    assert row(db, "state, worker_id, result") == ("running", "thief", None)


async def test_leases_are_kept_while_a_task_runs(
    config: Config, db: psycopg.Connection, server: Callable[..., Running]
) -> None:
    quick = config.with_changes(lock_timeout_seconds=3, heartbeat_interval_seconds=0.5, heartbeat_timeout_seconds=30)
    go_on = asyncio.Event()

    @task
    async def over_long() -> None:
        await go_on.wait()

    await AsyncClient(config).submit_task(over_long)
    async with working(config, server=str(server(quick))) as watched:
        await watched.until(TaskStarted)
        [first] = row(db, "locked_until")
        await soon(lambda: row(db, "locked_until")[0] != first)
        go_on.set()
        await watched.until(TaskStarted)
    assert row(db, "state, lease_token") == ("completed", 1)


@pytest.fixture
def killable(config: Config, tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(config, tmp_path / "server.log")
    yield process
    process.kill()


@pytest.mark.long
async def test_server_killed_while_a_worker_waits_in_its_poll(
    config: Config, db: psycopg.Connection, killable: ServerProcess
) -> None:
    ran: list[int] = []

    @task
    async def over_killed_waiting(n: int) -> None:
        ran.append(n)

    client = AsyncClient(config)
    await asyncio.to_thread(killable.start)
    async with working(config, server=killable.url) as watched:
        one = await client.submit_task(over_killed_waiting, n=1)
        await watched.ended(one, "completed")
        await soon(lambda: db.execute("SELECT asleep FROM workers").fetchone() == (True,))
        killable.kill()
        await watched.until(DatabaseLost)
        two = await client.submit_task(over_killed_waiting, n=2)
        await asyncio.to_thread(killable.start)
        await watched.ended(two, "completed")
        await watched.until(DatabaseBack)
    assert ran == [1, 2]
    assert db.execute("SELECT max(lease_token), max(crash_count) FROM tasks").fetchone() == (1, 0)


@pytest.mark.long
async def test_server_killed_between_a_claim_and_its_answer(
    config: Config, db: psycopg.Connection, killable: ServerProcess
) -> None:
    """The database finishes what it was asked for: the task is leased to a worker that knows nothing of it."""
    ran: list[int] = []

    @task
    async def over_killed_claiming(n: int) -> None:
        ran.append(n)

    db.execute(
        """
        CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END';
        CREATE TRIGGER held BEFORE UPDATE ON tasks FOR EACH ROW
            WHEN (NEW.state = 'running' AND NEW.lease_token = 1) EXECUTE FUNCTION held();
        SELECT pg_advisory_lock(7);
        """
    )
    await asyncio.to_thread(killable.start)
    async with working(config, server=killable.url) as watched:
        id_ = await AsyncClient(config).submit_task(over_killed_claiming, n=1)
        await soon(lambda: db.execute(CLAIM_IS_HELD).fetchone() is not None)
        killable.kill()
        await watched.until(DatabaseLost)
        db.execute("SELECT pg_advisory_unlock(7)")
        await soon(lambda: row(db) == ("running",))
        assert ran == []
        await asyncio.to_thread(killable.start)
        await watched.ended(id_, "completed")
    assert ran == [1]
    assert row(db, "lease_token, retry_count, crash_count") == (1, 0, 0)


def test_what_a_worker_over_http_cannot_do_is_said_at_once(config: Config) -> None:
    @task(transactional=True)
    async def over_transactional(connection: psycopg.AsyncConnection) -> None: ...

    with pytest.raises(ConfigError, match="needs a worker with a database"):
        Worker("http://127.0.0.1:1", names=["over_transactional"])
    with pytest.raises(ConfigError, match="must be a URL"):
        Worker(config, server="localhost:8765")


async def test_bad_token_and_wrong_queue_are_said_at_start(
    config: Config, server: Callable[..., Running], token: Callable[..., str]
) -> None:
    @task
    async def over_nothing() -> None: ...

    text = token("worker", queues=["mail"])
    url = str(server(config))
    with pytest.raises(ConfigError, match="doesn't take this worker"):
        await Worker(url, token=text, queues=["billing"]).run()
    with pytest.raises(ConnectionError, match="401"):
        await Worker(url, token="tasklib_wrong").run()


def test_worker_knows_a_server_by_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKLIB_TOKEN", "tasklib_x")
    worker = Worker("https://tasks.example.com")
    assert (worker.server, worker._token) == ("https://tasks.example.com", "tasklib_x")


async def test_a_worker_over_http_stores_its_schedules_if_its_token_may(
    config: Config, db: psycopg.Connection, server: Callable[..., Running]
) -> None:
    @task(schedule="@daily")
    async def nightly() -> None: ...

    url = str(server(config))
    client = AsyncClient(config)
    told: list[Event] = []

    async def start(token: str | None, stamp: str) -> None:
        worker = Worker(config.with_changes(deployed_at=stamp), server=url, token=token, burst=True)
        worker.events.subscribe(told.append)
        await worker.run()

    await start(None, "2026-11-01T00:00:00Z")
    assert [e.created for e in told if isinstance(e, SchedulesSynced)] == [("nightly",)]
    assert db.execute("SELECT source, module, deployed_at FROM schedules").fetchall() == [
        ("code", __name__, datetime(2026, 11, 1, tzinfo=UTC))
    ]
    told.clear()
    await start((await client.create_token("w", roles=["worker"])).text, "2026-11-02T00:00:00Z")
    [failed] = [e for e in told if isinstance(e, DutyFailed)]
    assert "tasklib schedule sync" in failed.reason
    told.clear()
    both = (await client.create_token("wo", roles=["worker", "operator"])).text
    await start(both, "2026-11-02T00:00:00Z")
    assert [e.unchanged for e in told if isinstance(e, SchedulesSynced)] == [("nightly",)]

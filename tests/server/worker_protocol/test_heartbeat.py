"""`POST /internal/workers/{id}/heartbeat`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest

from tasklib import Client, Config
from tasklib.backends.postgres.remote import workers
from tests.eventually import eventually
from tests.server.conftest import PATIENCE, Running
from tests.server.worker_protocol.remote import Remote, completed, lease, submit


def test_heartbeat_extends_leases_and_names_the_lost(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    submit(db, 2)
    kept, lost = worker.poll(2)
    db.execute("UPDATE tasks SET locked_until = now() + interval '1 s'")
    db.execute("UPDATE tasks SET lease_token = 9 WHERE id = %s", [lost["task_id"]])
    answer = worker.say("heartbeat", {"current_load": 2, "running": [lease(kept), lease(lost)]}).json()
    assert answer == {"acknowledged": True, "drain": False, "cancel": [], "lost": [lease(lost)], "locked": []}
    [(left,)] = db.execute(
        "SELECT extract(epoch FROM locked_until - now()) FROM tasks WHERE id = %s", [kept["task_id"]]
    ).fetchall()
    assert left > 500
    assert db.execute("SELECT current_load FROM workers").fetchone() == (2,)


def test_waiting_heartbeat_hears_of_a_cancel_request_at_once_and_only_once(
    http: httpx.Client, db: psycopg.Connection, side: ThreadPoolExecutor, config: Config
) -> None:
    worker = Remote(http)
    submit(db)
    [task] = worker.poll()

    def beat(**body: Any) -> dict[str, Any]:
        answer: dict[str, Any] = worker.say("heartbeat", body).json()
        return answer

    waiting = side.submit(beat, wait_seconds=30.0)
    with Client(config) as client:
        client.cancel_task(task["task_id"])
    assert waiting.result(PATIENCE)["cancel"] == [lease(task)]
    assert beat()["cancel"] == [lease(task)], "as often as it is asked for"
    assert beat(cancelling=[task["task_id"]], wait_seconds=0.01)["cancel"] == []
    assert worker.say("result", {**lease(task), "status": "cancelled"}).json()["status"] == "cancelled"


def test_drain_is_heard_and_a_draining_worker_gets_nothing(
    http: httpx.Client, db: psycopg.Connection, side: ThreadPoolExecutor, config: Config
) -> None:
    worker = Remote(http)
    polling = side.submit(worker.poll, 1, wait_seconds=30.0)
    beating: Future[httpx.Response] = side.submit(worker.say, "heartbeat", {"wait_seconds": 30.0})
    eventually(lambda: db.execute("SELECT asleep FROM workers").fetchone() == (True,))
    with Client(config) as client:
        client.drain_worker(worker.id)
    assert beating.result(PATIENCE).json()["drain"] is True
    assert worker.say("heartbeat", {"status": "draining"}).json()["drain"] is True
    assert polling.result(PATIENCE) == [], "its poll ends"
    submit(db)
    assert worker.poll(1, wait_seconds=0.01) == []
    assert db.execute("SELECT status FROM workers").fetchone() == ("draining",)


def test_a_worker_that_was_draining_and_is_active_again_gets_tasks(
    http: httpx.Client, db: psycopg.Connection, side: ThreadPoolExecutor
) -> None:
    worker = Remote(http)
    worker.say("heartbeat", {"status": "draining"})
    submit(db)
    waiting = side.submit(worker.poll, 1, wait_seconds=PATIENCE)
    assert not waiting.done(), "a poll while it drains waits: it doesn't come back empty again and again"
    assert worker.say("heartbeat", {"status": "active"}).status_code == 200
    assert len(waiting.result(PATIENCE)) == 1
    assert db.execute("SELECT status FROM workers").fetchone() == ("active",)


def test_a_heartbeat_that_waits_leaves_the_status_that_a_later_one_has_set(
    server: Callable[..., Running], db: psycopg.Connection, side: ThreadPoolExecutor, config: Config
) -> None:
    url = server(config)
    worker = Remote(url.http)
    waiting = side.submit(worker.say, "heartbeat", {"wait_seconds": PATIENCE})
    eventually(lambda: bool(url.app.state.services.notifier._waiting_for_orders))
    worker.say("heartbeat", {"status": "draining"})
    with Client(config) as client:
        client.drain_worker(worker.id)
    assert waiting.result(PATIENCE).json()["drain"] is True
    assert db.execute("SELECT status FROM workers").fetchone() == ("draining",)


@pytest.mark.parametrize("news", ["lost", "cancel", "drain"])
def test_a_heartbeat_that_names_the_same_again_is_not_answered_at_once(
    server: Callable[..., Running],
    db: psycopg.Connection,
    config: Config,
    news: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that has not yet done what it was told would otherwise ask hundreds of times a second."""
    url = server(config, max_wait_seconds=2 * PATIENCE)
    worker = Remote(url.http)
    submit(db)
    [task] = worker.poll()
    body = {"running": [lease(task)], "wait_seconds": 2 * PATIENCE}
    with Client(config) as client:
        match news:
            case "lost":
                db.execute("UPDATE tasks SET lease_token = 9")
            case "cancel":
                client.cancel_task(task["task_id"])
            case "drain":
                client.drain_worker(worker.id)
    first = worker.say("heartbeat", body).json()
    assert first[news]
    listening: Any = url.app.state.services.notifier
    waits: list[float] = []

    async def noted(seconds: float, **more: Any) -> bool:
        waits.append(seconds)
        monkeypatch.setattr(workers, "_SAME_AGAIN_SECONDS", 0.0)  # as if that time were over
        return False

    monkeypatch.setattr(listening, "wait", noted)
    monkeypatch.setattr(workers, "_SAME_AGAIN_SECONDS", PATIENCE)
    assert worker.say("heartbeat", body).json()[news] == first[news], "it is said again, but later"
    assert len(waits) == 1


def test_worker_declared_dead_is_told_so(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    db.execute("UPDATE workers SET reported_status = 'dead'")
    answer = worker.say("heartbeat", {})
    assert (answer.status_code, answer.json()["code"]) == (404, "worker_not_found")
    assert worker.say("poll", {"available_capacity": 1}).status_code == 404


def test_an_attempt_that_was_just_settled_is_among_the_lost(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    submit(db)
    [task] = worker.poll()
    assert worker.say("result", completed(task)).status_code == 200
    assert worker.say("heartbeat", {"running": [lease(task)]}).json()["lost"] == [lease(task)]

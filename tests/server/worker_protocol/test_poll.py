"""`POST /internal/workers/{id}/poll`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import psycopg
import pytest

from tasklib import Client, Config
from tests.eventually import eventually
from tests.server.conftest import PATIENCE, Running, bearer
from tests.server.worker_protocol.remote import NAME, Remote, completed, lease, submit


def test_a_worker_that_names_no_task_types_runs_any(http: httpx.Client, db: psycopg.Connection, config: Config) -> None:
    wanted = submit(db, 2, queue="mail") + submit(db, queue="other")
    db.execute("UPDATE tasks SET name = 'another' WHERE id = %s", [wanted[0]])
    worker = Remote(http, task_types=None, queues=["mail"])
    assert sorted(task["task_id"] for task in worker.poll(5)) == sorted(wanted[:2])
    assert worker.say("heartbeat", {"running": []}).status_code == 200
    assert db.execute("SELECT names FROM workers").fetchall() == [(None,)]
    with Client(config) as client:
        assert client.queue_position(wanted[2]) is not None
        assert "queue_not_served" in [r.code for r in client.explain_task(wanted[2]).reasons]
        db.execute("UPDATE tasks SET queue = 'mail' WHERE id = %s", [wanted[2]])
        assert "name_not_known" not in [r.code for r in client.explain_task(wanted[2]).reasons]


def test_poll_waits_and_is_woken_by_a_task(
    http: httpx.Client, db: psycopg.Connection, side: ThreadPoolExecutor, config: Config
) -> None:
    worker = Remote(http)
    waiting = side.submit(worker.poll, 2, wait_seconds=30.0)
    eventually(lambda: db.execute("SELECT asleep FROM workers").fetchone() == (True,))
    with Client(config) as client:
        client.submit_task(NAME, registered_elsewhere=True)
    [task] = waiting.result(PATIENCE)
    assert task["task_type"] == NAME


@pytest.mark.parametrize("why", ["it is away", "it has no room"])
def test_a_worker_that_can_not_take_what_it_is_woken_for_leaves_it_to_another(
    server: Callable[..., Running], config: Config, db: psycopg.Connection, side: ThreadPoolExecutor, why: str
) -> None:
    http = server(config.with_changes(poll_interval_seconds=1000.0)).http
    woken, other = Remote(http), Remote(http)
    asleep = "SELECT FROM workers WHERE asleep AND id = %s"
    waiting = side.submit(woken.poll, 1, wait_seconds=30.0)
    eventually(lambda: db.execute(asleep, [woken.id]).fetchall())
    waiting_too = side.submit(other.poll, 1, wait_seconds=60.0)
    eventually(lambda: db.execute(asleep, [other.id]).fetchall())
    db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
    wake = "SELECT pg_notify(wake_channel, id) FROM workers WHERE id = %s"
    if why == "it is away":
        assert side.submit(woken.poll, 1, wait_seconds=0.0).result(PATIENCE) == []
        assert waiting.result(PATIENCE) == []
        submit(db)
    else:
        submit(db, 2)
    db.execute(wake, [woken.id])
    assert len(waiting_too.result(PATIENCE)) == 1
    if why == "it has no room":
        assert len(waiting.result(PATIENCE)) == 1


def test_newer_poll_ends_an_older_one(
    server: Callable[..., Running], config: Config, db: psycopg.Connection, side: ThreadPoolExecutor
) -> None:
    """At once: the older one would find that out by itself only when it looks for tasks again."""
    worker = Remote(server(config.with_changes(poll_interval_seconds=1000.0)).http)
    older = side.submit(worker.poll, 1, wait_seconds=1000.0)
    eventually(lambda: db.execute("SELECT asleep FROM workers").fetchone() == (True,))
    newer = side.submit(worker.poll, 1, wait_seconds=15.0)
    assert older.result(PATIENCE) == []
    submit(db)
    assert len(newer.result(PATIENCE)) == 1


def test_poll_whose_answer_was_lost_gets_the_same_claim_again(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    submit(db, 3)
    lost = worker.poll(2)  # and suppose that the answer was lost
    assert worker.poll(1, holding=[lease(lost[0])]) == [lost[1]], "the same lease, not another attempt"
    assert worker.poll(2, holding=[]) == lost
    [last] = worker.poll(5, holding=[lease(task) for task in lost])
    assert last["task_id"] not in {task["task_id"] for task in lost}
    assert db.execute("SELECT max(lease_token) FROM tasks").fetchone() == (1,)
    everything = [*lost, last]
    answer = worker.say("result", {"results": [completed(task) for task in everything]}).json()
    assert all(r["accepted"] for r in answer["results"])
    assert worker.poll(5, holding=[]) == []


def test_tasks_claimed_for_a_worker_that_has_gone_are_released(
    server: Callable[..., Running], config: Config, db: psycopg.Connection
) -> None:
    """A worker that is killed in its poll costs nothing but the poll."""
    running = server(config)
    worker = Remote(running.http)
    with pytest.raises(httpx.ReadTimeout):
        running.http.post(
            f"/internal/workers/{worker.id}/poll",
            json={"available_capacity": 1, "wait_seconds": 30},
            timeout=httpx.Timeout(PATIENCE, read=0.2),
        )
    submit(db)
    other = Remote(running.http)
    eventually(lambda: len(other.poll(1, wait_seconds=1.0)) == 1)
    assert db.execute("SELECT worker_id FROM tasks").fetchone() == (other.id,)


def test_a_worker_declared_dead_while_its_poll_waits_gets_no_task_but_is_told_to_register_again(
    http: httpx.Client, db: psycopg.Connection, side: ThreadPoolExecutor, config: Config
) -> None:
    worker = Remote(http)
    waiting = side.submit(worker.say, "poll", {"available_capacity": 1, "wait_seconds": PATIENCE})
    eventually(lambda: db.execute("SELECT asleep FROM workers").fetchone() == (True,))
    db.execute("UPDATE workers SET reported_status = 'dead'")
    with Client(config) as client:
        client.submit_task(NAME, registered_elsewhere=True)
    answer = waiting.result(PATIENCE)
    assert (answer.status_code, answer.json()["code"]) == (404, "worker_not_found")
    row = db.execute("SELECT state, retry_count, crash_count, worker_id FROM tasks").fetchone()
    assert row == ("pending", 0, 0, None)


def test_token_limited_to_queues_takes_only_from_those(
    server: Callable[..., Running], config: Config, db: psycopg.Connection, token: Callable[..., str]
) -> None:
    text = token("worker", queues=["mail"])
    http = server(config).http
    asked = {"task_types": [NAME], "queues": ["mail", "billing"]}
    answer = http.post("/internal/workers/register", json=asked, headers=bearer(text))
    assert (answer.status_code, answer.json()["code"]) == (403, "queue_not_allowed")
    worker = Remote(http, text)
    assert worker.terms["queues"] == ["mail"]
    submit(db)
    [mine] = submit(db, queue="mail")
    assert [task["task_id"] for task in worker.poll(10)] == [mine]


def test_capabilities_count_as_registered_or_as_said(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http, capabilities=["cpu"])
    [id_] = submit(db, required_capabilities=["gpu"])
    assert worker.poll(1) == []
    assert [task["task_id"] for task in worker.poll(1, capabilities=["cpu", "gpu"])] == [id_]


def test_a_cancelled_task_that_never_arrived_is_handed_out_by_a_poll_with_what_is_held(
    http: httpx.Client, db: psycopg.Connection, config: Config
) -> None:
    worker = Remote(http)
    submit(db)
    [task] = worker.poll()  # and suppose that the answer was lost
    with Client(config) as client:
        client.cancel_task(task["task_id"])
    assert worker.say("heartbeat", {}).json()["cancel"] == [lease(task)]
    assert worker.poll(1, holding=[]) == [task]
    assert worker.say("result", {**lease(task), "status": "cancelled"}).json()["status"] == "cancelled"


def test_polls_bring_tasks_until_the_worker_itself_says_that_it_drains(
    http: httpx.Client, db: psycopg.Connection, config: Config
) -> None:
    worker = Remote(http)
    submit(db, 2)
    with Client(config) as client:
        client.drain_worker(worker.id)
    assert worker.say("heartbeat", {}).json()["drain"] is True
    assert len(worker.poll()) == 1
    worker.say("heartbeat", {"status": "draining"})
    assert worker.poll() == []


def test_stopping_server_answers_those_who_wait(
    server: Callable[..., Running], config: Config, db: psycopg.Connection, side: ThreadPoolExecutor
) -> None:
    running = server(config)
    worker = Remote(running.http)
    waiting = side.submit(worker.poll, 1, wait_seconds=30.0)
    eventually(lambda: db.execute("SELECT asleep FROM workers").fetchone() == (True,))
    running.server.should_exit = True
    assert waiting.result(PATIENCE) == []

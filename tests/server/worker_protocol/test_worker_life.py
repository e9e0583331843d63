"""A remote worker from its registration to its end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import psycopg
import pytest

from tasklib import Config
from tasklib.db.database import Database
from tasklib.store import fleet, maintenance
from tests.backends.resting import note_rests
from tests.eventually import eventually
from tests.server.conftest import PATIENCE, Running, running
from tests.server.worker_protocol.remote import Remote, completed, lease, states, submit


def test_task_goes_from_poll_to_result(http: httpx.Client, db: psycopg.Connection, config: Config) -> None:
    worker = Remote(http, capacity=3, name="node 7", version="1.2", host="h", pid=4)
    assert worker.id.startswith("node-7-")
    assert worker.terms["lease_seconds"] == config.lock_timeout_seconds
    assert worker.terms["heartbeat_interval_seconds"] == config.heartbeat_interval_seconds
    [id_] = submit(db, kwargs='{"n": 1, "text": "\\u00e4\\""}', max_retries=2, timeout_seconds=7)
    [task] = worker.poll(5)
    assert task["task_id"] == id_
    assert task["parameters"] == {"n": 1, "text": 'ä"'}
    assert (task["attempt"], task["max_attempts"], task["timeout_seconds"]) == (1, 3, 7)
    assert db.execute("SELECT state, worker_id FROM tasks").fetchone() == ("running", worker.id)
    assert worker.say("progress", {**lease(task), "progress": {"done": 0.5}}).status_code == 200
    answer = worker.say("result", completed(task, {"sum": [1, 2]}))
    assert answer.status_code == 200
    assert answer.json() == {"task_id": id_, "accepted": True, "status": "completed", "code": None, "detail": None}
    row = db.execute("SELECT state, result, progress FROM tasks").fetchone()
    assert row == ("completed", {"value": {"sum": [1, 2]}}, {"done": 0.5})
    assert worker.leave().status_code == 204
    assert db.execute("SELECT count(*) FROM workers").fetchone() == (0,)


def test_task_of_a_killed_worker_runs_elsewhere_and_its_late_result_is_refused(
    http: httpx.Client, db: psycopg.Connection, config: Config
) -> None:
    killed, other = Remote(http), Remote(http)
    submit(db)
    [task] = killed.poll()
    db.execute("UPDATE workers SET last_heartbeat = now() - interval '1 h' WHERE id = %s", [killed.id])
    database = Database(config)
    term = database.run(fleet.lead("leader", 60))
    assert term is not None
    assert database.run(fleet.bury_workers(term, forget_after=86400)) == [killed.id]
    database.run(maintenance.rescue(term, 3, 10))
    database.close()
    assert killed.say("result", completed(task, "late")).status_code == 409
    [again] = other.poll()
    assert (again["task_id"], again["attempt"], again["crash_count"]) == (task["task_id"], 2, 1)
    assert killed.say("result", completed(again, "a guess")).status_code == 409
    assert other.say("result", completed(again, "right")).status_code == 200
    assert db.execute("SELECT state, result FROM tasks").fetchone() == ("completed", {"value": "right"})


def test_leaving_gives_back_what_was_never_delivered(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    submit(db, 2)
    worker.poll(2)
    assert worker.leave().status_code == 204
    assert states(db) == ["pending", "pending"]
    assert worker.say("poll", {"available_capacity": 1}).status_code == 404
    assert worker.leave().status_code == 404


def test_task_that_commits_unannounced_after_the_last_look_reaches_the_poll(
    server: Callable[..., Running],
    db: psycopg.Connection,
    side: ThreadPoolExecutor,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its producer saw no worker asleep, and its commit comes when the server has looked: no notification tells."""
    http = server(config.with_changes(poll_interval_seconds=1000.0), max_wait_seconds=2 * PATIENCE).http
    worker = Remote(http)
    rests = note_rests(monkeypatch)
    with psycopg.connect(config.database_url) as producer:
        [id_] = submit(producer)
        waiting = side.submit(worker.poll, 1, wait_seconds=2 * PATIENCE)
        eventually(lambda: db.execute("SELECT asleep FROM workers").fetchone() == (True,), "it sleeps")
        rests.clear()
        eventually(rests.is_set, "the server has looked and found nothing")
    assert [task["task_id"] for task in waiting.result(PATIENCE)] == [id_]


def test_what_remote_workers_do_is_counted(
    server: Callable[..., Running], config: Config, db: psycopg.Connection
) -> None:
    with running(config) as first:
        worker = Remote(first.http)
        submit(db, 4, max_retries=0)
        done, failed, released, later = worker.poll(4)
        results = [completed(done), {**lease(failed), "status": "failed"}, {**lease(released), "status": "released"}]
        worker.say("result", {"results": results})
    # A server tells what is left when it ends; another one knows nothing of what that has handed out.
    with running(config) as second:
        worker.http = second.http
        assert worker.say("result", completed(later)).status_code == 200
    counted = dict(
        db.execute("SELECT outcome, sum(count)::int FROM stats_deltas WHERE name <> '' GROUP BY 1").fetchall()
    )
    assert counted == {"completed": 2, "dead_letter": 1, "released": 1}

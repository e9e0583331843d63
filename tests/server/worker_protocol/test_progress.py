"""`POST /internal/workers/{id}/progress`."""

from __future__ import annotations

import httpx
import psycopg

from tests.server.worker_protocol.remote import Remote, completed, lease, submit


def test_progress_may_be_larger_than_a_result(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    submit(db)
    [task] = worker.poll()
    large = "x" * (worker.terms["max_payload_bytes"] + 10)
    assert worker.say("progress", {**lease(task), "progress": large}).status_code == 200
    assert worker.say("result", completed(task, large)).json()["code"] == "result_not_storable"


def test_a_progress_report_that_cant_be_stored_refuses_only_itself(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    submit(db, 2)
    good, bad = worker.poll(2)
    reports = [{**lease(good), "progress": 1}, {**lease(bad), "progress": "\x00"}]
    answer = worker.say("progress", {"reports": reports})
    assert answer.status_code == 200, answer.text
    [refused] = answer.json()["refused"]
    assert (refused["task_id"], refused["lease_token"]) == (bad["task_id"], bad["lease_token"])
    assert "can't store" in refused["detail"]
    stored = dict(db.execute("SELECT id::text, progress FROM tasks").fetchall())
    assert stored == {good["task_id"]: 1, bad["task_id"]: None}

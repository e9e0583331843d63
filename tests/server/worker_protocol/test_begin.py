"""`POST /internal/workers/{id}/begin`."""

from __future__ import annotations

import httpx
import psycopg
import pytest

from tests.server.worker_protocol.remote import Remote, lease, submit


def test_a_task_begun_at_most_once_is_on_record_and_cant_be_given_back(
    http: httpx.Client, db: psycopg.Connection
) -> None:
    worker = Remote(http)
    submit(db)
    [task] = worker.poll()
    begins = {**lease(task), "at_most_once": True}
    for _ in range(2):  # twice is the same as once
        assert worker.say("begin", begins).json() == {"begun": [lease(task)], "lost": []}
    assert db.execute("SELECT begun_token = lease_token, at_most_once FROM tasks").fetchone() == (True, True)
    worker.say("result", {**lease(task), "status": "released"})
    assert db.execute("SELECT state FROM tasks").fetchone() == ("running",)
    assert (
        worker.say("result", {**lease(task), "status": "failed", "error": "stopped"}).json()["status"] == "dead_letter"
    )
    assert worker.say("begin", begins).json()["code"] == "stale_attempt"


@pytest.mark.parametrize("reports_begin", [False, True])
def test_a_task_that_crashed_before_begins_when_it_is_handed_out_unless_the_worker_reports_it(
    http: httpx.Client, db: psycopg.Connection, reports_begin: bool
) -> None:
    worker = Remote(http)
    submit(db)
    db.execute("UPDATE tasks SET crash_count = 1")
    answer = worker.say("poll", {"available_capacity": 1, "reports_begin": reports_begin}).json()
    assert len(answer["tasks"]) == 1
    assert db.execute("SELECT begun_token IS NOT NULL FROM tasks").fetchone() == (not reports_begin,)

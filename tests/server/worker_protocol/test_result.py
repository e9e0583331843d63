"""`POST /internal/workers/{id}/result`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tasklib import Config
from tests.eventually import eventually
from tests.server.conftest import Running
from tests.server.worker_protocol.remote import Remote, completed, lease, states, submit


def test_failed_released_and_cancelled_results(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    submit(db, 5, max_retries=1)
    tasks = worker.poll(5)
    results = [
        {**lease(tasks[0]), "status": "failed", "error": "boom", "retry_in_seconds": 100.0},
        {**lease(tasks[1]), "status": "failed", "error": "never again", "retriable": False},
        {**lease(tasks[2]), "status": "released"},
        {**lease(tasks[3]), "status": "cancelled", "error": "asked to"},
        {**lease(tasks[4]), "status": "failed", "reason": "crash"},
    ]
    answer = worker.say("result", {"results": results}).json()["results"]
    assert [r["status"] for r in answer] == ["failed", "dead_letter", "pending", "cancelled", "failed"]
    assert [r["task_id"] for r in answer] == [t["task_id"] for t in tasks]
    rows = {
        row[0]: row[1:] for row in db.execute("SELECT id::text, error, crash_count, next_retry_at - now() FROM tasks")
    }
    assert rows[tasks[0]["task_id"]][0] == "boom"
    assert 50 < rows[tasks[0]["task_id"]][2].total_seconds() <= 100
    assert rows[tasks[4]["task_id"]][1] == 1
    assert 0 < rows[tasks[4]["task_id"]][2].total_seconds() <= 6, "what it didn't say is left to the policy"


def test_late_duplicate_reordered_and_foreign_results_leave_one_terminal_state(
    server: Callable[..., Running], config: Config, db: psycopg.Connection, token: Callable[..., str]
) -> None:
    text, other = token("worker"), token("worker")
    http = server(config).http
    first, second, stranger = Remote(http, text), Remote(http, text), Remote(http, other)
    [id_] = submit(db)
    [late] = first.poll()
    # The lease runs out, and the task goes to another worker.
    db.execute("UPDATE tasks SET state = 'pending', worker_id = NULL, locked_until = NULL, started_at = NULL")
    [task] = second.poll()
    assert task["lease_token"] == late["lease_token"] + 1
    before = db.execute("SELECT * FROM tasks").fetchall()

    def refused(answer: httpx.Response, status: int, code: str) -> None:
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        assert db.execute("SELECT * FROM tasks").fetchall() == before

    for ending in ("completed", "failed", "released", "cancelled"):
        refused(first.say("result", {**lease(late), "status": ending}), 409, "stale_attempt")
        refused(first.say("result", {**lease(task), "status": ending}), 409, "stale_attempt")
        refused(stranger.say("result", {**lease(task), "status": ending}), 409, "stale_attempt")
        refused(stranger.say("result", {**lease(task), "status": ending}, second.id), 404, "worker_not_found")
    refused(first.say("progress", {**lease(late), "progress": 1}), 409, "stale_attempt")
    refused(second.say("result", completed({"task_id": str(uuid4()), "lease_token": 1})), 409, "stale_attempt")
    mixed = second.say("result", {"results": [completed(late, "reordered"), completed(task, "right")]}).json()
    assert [r["code"] for r in mixed["results"]] == ["stale_attempt", None], "each as if it had come alone"
    before = db.execute("SELECT * FROM tasks").fetchall()
    refused(second.say("result", completed(task, "again")), 409, "already_settled")
    refused(second.say("result", {**lease(task), "status": "failed", "error": "no"}), 409, "already_settled")
    refused(first.say("result", completed(late, "much later")), 409, "stale_attempt")
    assert db.execute("SELECT id::text, state, result FROM tasks").fetchall() == [
        (id_, "completed", {"value": "right"})
    ]


def test_two_results_for_one_task_are_judged_alike_in_one_batch_and_one_by_one(
    http: httpx.Client, db: psycopg.Connection
) -> None:
    worker = Remote(http)
    submit(db, 2)
    for task, together in zip(worker.poll(2), (True, False), strict=True):
        reports = [
            completed(task, "\x00"),
            {**lease(task), "lease_token": 7, "status": "completed", "result": "of another attempt"},
            {**lease(task), "status": "failed", "error": "could not be stored", "retriable": False},
            completed(task, 2),
            {**lease(task), "status": "released"},
        ]
        if together:
            codes = [r["code"] for r in worker.say("result", {"results": reports}).json()["results"]]
        else:
            codes = [worker.say("result", report).json()["code"] for report in reports]
        assert codes == ["result_not_storable", "stale_attempt", None, "already_settled", "already_settled"]
    assert states(db) == ["dead_letter", "dead_letter"]
    assert db.execute("SELECT DISTINCT error FROM tasks").fetchall() == [("could not be stored",)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param(b"[" * 100 + b"]" * 100, "nested deeper", id="too deep"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, "nested deeper", id="far too deep"),
        pytest.param(b"9" * 5000, "too many digits", id="too many digits"),
        pytest.param(b'"\xff\xfe"', "not UTF-8", id="not UTF-8"),
        pytest.param(b"tru", "not JSON", id="not JSON"),
    ],
)
def test_a_result_that_cannot_be_read_is_named_and_the_others_of_its_batch_are_stored(
    http: httpx.Client, db: psycopg.Connection, bad: bytes, reason: str
) -> None:
    worker = Remote(http)
    submit(db, 3)
    first, second, third = worker.poll(3)

    def text(task: dict[str, Any], result: bytes) -> bytes:
        head = f'{{"task_id": "{task["task_id"]}", "lease_token": {task["lease_token"]}, "status": "completed", '
        return head.encode() + b'"result": ' + result + b"}"

    batch = [text(first, b'{"a": ["},{", 1]}'), text(second, bad), text(third, b'"]}"')]
    answer = http.post(
        f"/internal/workers/{worker.id}/result",
        content=b'{"results": [' + b", ".join(batch) + b"]}",
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 200, answer.text
    good, refused, other = answer.json()["results"]
    assert (good["accepted"], other["accepted"]) == (True, True)
    assert (refused["task_id"], refused["code"]) == (second["task_id"], "result_not_storable")
    assert "results[1]" in refused["detail"]
    assert reason in refused["detail"]
    assert sorted(states(db)) == ["completed", "completed", "running"]
    values = [row[0]["value"] for row in db.execute("SELECT result FROM tasks WHERE state = 'completed' ORDER BY id")]
    assert values == [{"a": ["},{", 1]}, "]}"]
    alone = http.post(
        f"/internal/workers/{worker.id}/result",
        content=batch[1],
        headers={"Content-Type": "application/json"},
    )
    assert (alone.status_code, alone.json()["code"]) in ((422, "too_deep"), (400, "invalid_json"))


def test_a_result_of_the_wrong_form_does_not_refuse_the_others_of_its_batch(
    http: httpx.Client, db: psycopg.Connection
) -> None:
    worker = Remote(http)
    submit(db, 2)
    good, bad = worker.poll(2)
    batch = [{**lease(bad), "status": "finished"}, 7, completed(good)]
    answers = worker.say("result", {"results": batch}).json()["results"]
    assert [r["accepted"] for r in answers] == [False, False, True]
    assert [r["task_id"] for r in answers] == [bad["task_id"], None, good["task_id"]]
    assert "status" in answers[0]["detail"]


def test_result_that_cannot_be_stored_is_refused_alone(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    submit(db, 3)
    good, bad, large = worker.poll(3)
    results = [completed(good, 1), completed(bad, "\x00"), completed(large, "x" * 1_100_000)]
    answer = worker.say("result", {"results": results}).json()["results"]
    assert [r["code"] for r in answer] == [None, "result_not_storable", "result_not_storable"]
    assert worker.say("result", completed(bad, "\x00")).status_code == 422
    assert sorted(states(db)) == ["completed", "running", "running"]
    assert worker.say("result", {**lease(bad), "status": "failed", "error": "\x00"}).json()["status"] == "failed"


def test_a_row_that_another_transaction_has_locked_is_named_and_holds_up_no_other(
    http: httpx.Client, db: psycopg.Connection, config: Config
) -> None:
    worker = Remote(http)
    submit(db, 2)
    held, free = worker.poll(2)
    with psycopg.connect(config.database_url) as other:
        other.execute("SELECT id FROM tasks WHERE id = %s FOR UPDATE", [held["task_id"]])
        answer = worker.say("heartbeat", {"running": [lease(held), lease(free)]}).json()
        assert (answer["lost"], answer["locked"]) == ([], [lease(held)])
        answers = worker.say("result", {"results": [completed(held), completed(free)]}).json()["results"]
        assert [(a["accepted"], a["code"]) for a in answers] == [(False, "row_locked"), (True, None)]
    assert worker.say("result", completed(held)).json()["accepted"]


def test_the_last_line_of_an_error_is_its_headline(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    [id_] = submit(db, max_retries=0)
    [task] = worker.poll()
    worker.say("result", {**lease(task), "status": "failed", "error": "goroutine 1\n\tmain.go:7\npanic: no"})
    error = http.get(f"/api/v1/tasks/{id_}").json()["error"]
    assert (error["message"], error["traceback"]) == ("panic: no", "goroutine 1\n\tmain.go:7\npanic: no")


def test_batch_over_the_limit_is_refused_whole(server: Callable[..., Running], config: Config) -> None:
    worker = Remote(server(config, max_batch=2).http)
    results = [completed({"task_id": str(uuid4()), "lease_token": 1}) for _ in range(3)]
    answer = worker.say("result", {"results": results})
    assert (answer.status_code, answer.json()["code"]) == (413, "batch_too_large")


def test_a_result_is_answered_before_it_is_counted(
    server: Callable[..., Running], config: Config, db: psycopg.Connection
) -> None:
    http = server(config).http
    worker = Remote(http)
    submit(db, 2)
    one, other = worker.poll(2)
    with psycopg.connect(config.database_url) as reader:
        reader.execute("LOCK TABLE stats_deltas IN ACCESS EXCLUSIVE MODE")
        assert worker.say("result", completed(one)).json()["status"] == "completed"
        assert worker.say("result", completed(other)).json()["status"] == "completed"
    counted = "SELECT sum(count)::int FROM stats_deltas WHERE outcome = 'completed'"
    eventually(lambda: db.execute(counted).fetchone() == (2,), "both are counted when the table is free")

"""The worker protocol, request by request: what is answered, and what it does to the table."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tasklib import Client, Config
from tasklib.backends.postgres.remote import workers
from tasklib.db.database import Database
from tasklib.store import fleet, maintenance
from tests.backends.resting import note_rests
from tests.eventually import eventually
from tests.server.conftest import PATIENCE, Running, bearer, running

NAME = "protocol.work"


class Remote:
    """A worker made of nothing but requests."""

    def __init__(self, http: httpx.Client, token: str | None = None, **registration: Any) -> None:
        self.http = http
        self.headers = bearer(token) if token else {}
        answer = self.post("register", {"task_types": [NAME], **registration})
        assert answer.status_code == 201, answer.text
        self.terms = answer.json()
        self.id: str = self.terms["worker_id"]

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self.http.post(f"/internal/workers/{path}", json=body, headers=self.headers)

    def say(self, what: str, body: dict[str, Any], worker: str | None = None) -> httpx.Response:
        return self.post(f"{worker or self.id}/{what}", body)

    def poll(self, capacity: int = 1, **body: Any) -> list[dict[str, Any]]:
        answer = self.say("poll", {"available_capacity": capacity, **body})
        assert answer.status_code == 200, answer.text
        tasks: list[dict[str, Any]] = answer.json()["tasks"]
        return tasks

    def leave(self) -> httpx.Response:
        return self.http.delete(f"/internal/workers/{self.id}", headers=self.headers)


def lease(task: dict[str, Any]) -> dict[str, Any]:
    return {"task_id": task["task_id"], "lease_token": task["lease_token"]}


def completed(task: dict[str, Any], result: Any = None) -> dict[str, Any]:
    return {**lease(task), "status": "completed", "result": result}


def submit(db: psycopg.Connection, count: int = 1, **columns: Any) -> list[str]:
    names = ["name", *columns]
    values = ", ".join(["%s"] * len(names))
    statement = f"INSERT INTO tasks ({', '.join(names)}) SELECT {values} FROM generate_series(1, %s) RETURNING id::text"
    return [row[0] for row in db.execute(statement.encode(), [NAME, *columns.values(), count]).fetchall()]


def states(db: psycopg.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT state FROM tasks ORDER BY id").fetchall()]


@pytest.fixture
def http(server: Callable[..., Running], config: Config) -> httpx.Client:
    return server(config).http


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


def test_newer_poll_ends_an_older_one(http: httpx.Client, db: psycopg.Connection, side: ThreadPoolExecutor) -> None:
    worker = Remote(http)
    older = side.submit(worker.poll, 1, wait_seconds=30.0)
    eventually(lambda: db.execute("SELECT asleep FROM workers").fetchone() == (True,))
    newer = side.submit(worker.poll, 1, wait_seconds=30.0)
    assert older.result(PATIENCE) == []
    submit(db)
    assert len(newer.result(PATIENCE)) == 1


def test_poll_whose_answer_was_lost_gets_the_same_claim_again(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    submit(db, 3)
    lost = worker.poll(2)  # and suppose that nobody read it
    assert worker.poll(1, holding=[lease(lost[0])]) == [lost[1]], "the same lease, not another attempt"
    assert worker.poll(2, holding=[]) == lost
    [last] = worker.poll(5, holding=[lease(task) for task in lost])
    assert last["task_id"] not in {task["task_id"] for task in lost}
    assert db.execute("SELECT max(lease_token) FROM tasks").fetchone() == (1,)
    everything = [*lost, last]
    answer = worker.say("result", {"results": [completed(task) for task in everything]}).json()
    assert all(r["accepted"] for r in answer["results"])
    assert worker.poll(5, holding=[]) == []


def test_tasks_claimed_for_somebody_who_has_gone_are_given_back(
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


def test_worker_declared_dead_is_told_so(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    db.execute("UPDATE workers SET reported_status = 'dead'")
    answer = worker.say("heartbeat", {})
    assert (answer.status_code, answer.json()["code"]) == (404, "worker_not_found")
    assert worker.say("poll", {"available_capacity": 1}).status_code == 404


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


def test_worker_of_one_token_is_unknown_to_another(
    server: Callable[..., Running], config: Config, db: psycopg.Connection, token: Callable[..., str]
) -> None:
    text, other = token("worker"), token("worker")
    http = server(config).http
    worker, stranger = Remote(http, text), Remote(http, other)
    db.execute("INSERT INTO workers (id, names) VALUES ('with-database', '{x}')")
    for id_ in (worker.id, "with-database", "nobody"):
        for what, body in (
            ("poll", {"available_capacity": 1}),
            ("heartbeat", {}),
            ("result", completed({"task_id": str(uuid4()), "lease_token": 1})),
            ("progress", {"task_id": str(uuid4()), "lease_token": 1, "progress": 1}),
        ):
            assert stranger.say(what, body, id_).status_code == 404
        assert http.delete(f"/internal/workers/{id_}", headers=stranger.headers).status_code == 404
    assert http.post("/internal/workers/register", json={"task_types": [NAME]}).status_code == 401
    submitter = bearer(token("submitter", "operator", "admin"))
    assert http.post("/internal/workers/register", json={"task_types": [NAME]}, headers=submitter).status_code == 403


def test_capabilities_count_as_registered_or_as_said(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http, capabilities=["cpu"])
    [id_] = submit(db, required_capabilities=["gpu"])
    assert worker.poll(1) == []
    assert [task["task_id"] for task in worker.poll(1, capabilities=["cpu", "gpu"])] == [id_]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("register", {"task_types": []}),
        ("register", {"task_types": ["\x00"]}),
        ("register", {"task_types": ["a"], "capacity": 0}),
        ("register", {"task_types": ["a"], "colour": "red"}),
        ("{id}/poll", {"available_capacity": 0}),
        ("{id}/poll", {"available_capacity": 1, "wait_seconds": -1.0}),
        ("{id}/result", {"task_id": "x", "lease_token": 1, "status": "completed"}),
        ("{id}/result", {"task_id": str(uuid4()), "lease_token": 2**63, "status": "completed"}),
        ("{id}/result", {"task_id": str(uuid4()), "lease_token": 1, "status": "running"}),
        ("{id}/result", {"results": []}),
        ("{id}/progress", {"task_id": str(uuid4()), "lease_token": 1, "progress": "\x00"}),
    ],
)
def test_what_makes_no_sense_is_refused(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    worker = Remote(http)
    answer = worker.post(path.format(id=worker.id), body)
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize(
    ("path", "body", "least", "most"),
    [
        ("register", {"task_types": ["a"], "capacity": ...}, 1, 100_000),
        ("register", {"task_types": ["a"], "pid": ...}, 0, 2**31 - 1),
        ("{id}/poll", {"available_capacity": ...}, 1, 100_000),
        ("{id}/heartbeat", {"current_load": ...}, 0, 2**31 - 1),
    ],
)
def test_numbers_have_the_bounds_that_the_page_names(
    http: httpx.Client, path: str, body: dict[str, Any], least: int, most: int
) -> None:
    worker = Remote(http)

    def answered(value: int) -> int:
        said = {key: value if given is ... else given for key, given in body.items()}
        return worker.post(path.format(id=worker.id), said).status_code

    assert [answered(least) // 100, answered(most) // 100] == [2, 2]
    assert [answered(least - 1), answered(most + 1)] == [422, 422]


def test_texts_and_times_have_the_bounds_that_the_page_names(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    for key in ("name", "version", "host"):
        registered = [worker.post("register", {"task_types": ["a"], key: "x" * n}).status_code for n in (200, 201)]
        assert registered == [201, 422]
    named = [worker.post("register", {"task_types": ["x" * n]}).status_code for n in (500, 501)]
    assert named == [201, 422]
    submit(db)
    [task] = worker.poll()
    failed = {**lease(task), "status": "failed"}
    years = 1000 * 365 * 86400.0
    assert worker.say("result", {**failed, "retry_in_seconds": years + 1}).status_code == 422
    assert worker.say("result", {**failed, "retry_in_seconds": years}).status_code == 200


def test_the_last_line_of_an_error_is_its_headline(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    [id_] = submit(db, max_retries=0)
    [task] = worker.poll()
    worker.say("result", {**lease(task), "status": "failed", "error": "goroutine 1\n\tmain.go:7\npanic: no"})
    error = http.get(f"/api/v1/tasks/{id_}").json()["error"]
    assert (error["message"], error["traceback"]) == ("panic: no", "goroutine 1\n\tmain.go:7\npanic: no")


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


def test_an_attempt_that_was_just_settled_is_among_the_lost(http: httpx.Client, db: psycopg.Connection) -> None:
    worker = Remote(http)
    submit(db)
    [task] = worker.poll()
    assert worker.say("result", completed(task)).status_code == 200
    assert worker.say("heartbeat", {"running": [lease(task)]}).json()["lost"] == [lease(task)]


def test_a_cancelled_task_that_never_arrived_is_handed_out_by_a_poll_with_what_is_held(
    http: httpx.Client, db: psycopg.Connection, config: Config
) -> None:
    worker = Remote(http)
    submit(db)
    [task] = worker.poll()  # and suppose that nobody read it
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


def test_batch_over_the_limit_is_refused_whole(server: Callable[..., Running], config: Config) -> None:
    worker = Remote(server(config, max_batch=2).http)
    results = [completed({"task_id": str(uuid4()), "lease_token": 1}) for _ in range(3)]
    answer = worker.say("result", {"results": results})
    assert (answer.status_code, answer.json()["code"]) == (413, "batch_too_large")


def test_stopping_server_answers_those_who_wait(
    server: Callable[..., Running], config: Config, db: psycopg.Connection, side: ThreadPoolExecutor
) -> None:
    running = server(config)
    worker = Remote(running.http)
    waiting = side.submit(worker.poll, 1, wait_seconds=30.0)
    eventually(lambda: db.execute("SELECT asleep FROM workers").fetchone() == (True,))
    running.server.should_exit = True
    assert waiting.result(PATIENCE) == []


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

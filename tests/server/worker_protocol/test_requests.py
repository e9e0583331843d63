"""What every endpoint refuses: values out of bounds, workers of other tokens, requests that make no sense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tasklib import Config
from tests.server.conftest import Running, bearer
from tests.server.worker_protocol.remote import NAME, Remote, completed, lease, submit


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

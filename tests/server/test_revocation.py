"""A token that ends while its requests wait: streams, long polls, and what was about to be handed out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest

from tasklib import Client, Config
from tasklib.server import token_cache
from tasklib.store.tokens import NewToken
from tests.eventually import eventually
from tests.server.conftest import PATIENCE, Running, bearer
from tests.server.worker_protocol.remote import Remote, states, submit

Start = Callable[..., Running]
ENDS = {"revoked": "revoked_at = now()", "expired": "expires_at = now() - interval '1 s'"}


def is_waited(url: Running, count: int = 1) -> Callable[[], bool]:
    return lambda: len(url.app.state.services.token_watch._waiting) >= count


def end(db: psycopg.Connection, token: NewToken, how: str) -> None:
    changes = f"UPDATE api_tokens SET created_at = now() - interval '1 day', {ENDS[how]} WHERE id = %s"
    db.execute(changes.encode(), [token.info.id])


def test_the_looks_are_close_enough_for_a_second() -> None:
    assert token_cache.LOOK_SECONDS + token_cache.FRESH_SECONDS <= 1.0


@pytest.mark.parametrize("how", ENDS)
def test_an_event_stream_ends_with_its_token(
    server: Start, config: Config, db: psycopg.Connection, new_token: Any, side: ThreadPoolExecutor, how: str
) -> None:
    url, token = server(config), new_token("submitter")
    http = url.http
    task_id = http.post("/api/v1/tasks", json={"task_type": "slow"}, headers=bearer(token.text)).json()["task_id"]
    with http.stream("GET", f"/api/v1/tasks/{task_id}/events", headers=bearer(token.text)) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: task"
        eventually(is_waited(url))
        end(db, token, how)
        assert not [line for line in lines if line.startswith(":")], "it went on"
    db.execute("UPDATE tasks SET progress = '1'")  # a later change was sent to no stream
    again = http.get(f"/api/v1/tasks/{task_id}/events", headers=bearer(token.text))
    assert (again.status_code, again.json()["code"]) == (401, "token_invalid")


@pytest.mark.parametrize("how", ENDS)
def test_a_request_that_waits_for_a_result_ends_with_its_token(
    server: Start, config: Config, db: psycopg.Connection, new_token: Any, side: ThreadPoolExecutor, how: str
) -> None:
    url, token = server(config, max_wait_seconds=PATIENCE), new_token("submitter")
    headers = bearer(token.text)
    task_id = url.http.post("/api/v1/tasks", json={"task_type": "slow"}, headers=headers).json()["task_id"]
    waiting = side.submit(url.http.get, f"/api/v1/tasks/{task_id}/result?wait_seconds=60", headers=headers)
    eventually(is_waited(url))
    end(db, token, how)
    answer = waiting.result(PATIENCE)
    assert (answer.status_code, answer.json()["code"]) == (401, "token_invalid")


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("what", ["poll", "heartbeat"])
def test_a_waiting_worker_is_told_that_its_token_has_ended(
    server: Start,
    config: Config,
    db: psycopg.Connection,
    new_token: Any,
    side: ThreadPoolExecutor,
    what: str,
    how: str,
) -> None:
    url, token = server(config, max_wait_seconds=PATIENCE), new_token("worker")
    worker = Remote(url.http, token.text)
    body = {"available_capacity": 1} if what == "poll" else {}
    waiting = side.submit(worker.say, what, {**body, "wait_seconds": 60.0})
    eventually(is_waited(url))
    end(db, token, how)
    answer = waiting.result(PATIENCE)
    assert (answer.status_code, answer.json()["code"]) == (401, "token_invalid")


@pytest.mark.parametrize("how", ENDS)
def test_a_waiting_poll_is_never_handed_a_task_after_its_token_has_ended(
    server: Start,
    config: Config,
    db: psycopg.Connection,
    new_token: Any,
    side: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    """Not even in the moment before the server has noticed: the last look comes after the claim."""
    monkeypatch.setattr(token_cache.TokenWatch, "_EVERY_SECONDS", 3600.0)
    url, token = server(config, max_wait_seconds=PATIENCE), new_token("worker")
    worker = Remote(url.http, token.text)
    waiting = side.submit(worker.poll, 1, wait_seconds=60.0)
    eventually(lambda: db.execute("SELECT asleep FROM workers").fetchone() == (True,))
    end(db, token, how)
    submit(db)
    assert waiting.result(PATIENCE) == []
    assert states(db) == ["pending"]
    assert db.execute("SELECT worker_id, retry_count, crash_count FROM tasks").fetchone() == (None, 0, 0)


def test_a_waiting_poll_without_a_token_ends_when_the_first_one_is_made(
    server: Start, config: Config, db: psycopg.Connection, side: ThreadPoolExecutor
) -> None:
    url = server(config, max_wait_seconds=PATIENCE)
    worker = Remote(url.http)
    waiting = side.submit(worker.say, "poll", {"available_capacity": 1, "wait_seconds": 60.0})
    eventually(is_waited(url))
    with Client(config) as client:
        client.create_token("first", roles=["viewer"])
    assert waiting.result(PATIENCE).status_code == 401


def test_one_statement_looks_after_all_who_wait(
    server: Start, config: Config, new_token: Any, side: ThreadPoolExecutor
) -> None:
    url, token = server(config, max_wait_seconds=PATIENCE), new_token("submitter")
    headers = bearer(token.text)
    task_id = url.http.post("/api/v1/tasks", json={"task_type": "slow"}, headers=headers).json()["task_id"]

    def watch() -> int:
        with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE) as http:
            return http.get(f"/api/v1/tasks/{task_id}/result?wait_seconds=60").status_code

    waiting = [side.submit(watch) for _ in range(4)]
    eventually(is_waited(url, 4))
    assert len({w.prefix for w in url.app.state.services.token_watch._waiting}) == 1
    with Client(config) as client:
        client.revoke_token(token.info.prefix)
    assert [w.result(PATIENCE) for w in waiting] == [401] * 4
    eventually(lambda: not url.app.state.services.token_watch._waiting)

"""Caps: what one token, and all of them together, may hold of the server. They are counted, not measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb

from tasklib import Config
from tasklib.http import HttpClient
from tasklib.testing import databases
from tests.eventually import eventually
from tests.server.api import Api, api_on, refused
from tests.server.conftest import PATIENCE, Running, bearer

TASKS = "/api/v1/tasks"
LARGE = "x" * 100_000


@pytest.fixture(scope="module")
def module_api(server_url: str, template_database: str) -> Iterator[Api]:
    """A server with small caps."""
    with (
        databases.database(server_url, template_database) as url,
        api_on(
            url,
            max_wait_seconds=PATIENCE,
            max_streams_per_token=20,
            max_streams=25,
            max_waiting_per_token=3,
            max_waiting=5,
            max_answer_bytes=20_000,
            max_list_value_bytes=2_000,
        ) as made,
    ):
        yield made


# ---- streams ----


def test_the_stream_beyond_a_tokens_limit_is_refused_and_an_ended_one_makes_room(api: Api) -> None:
    path = f"{TASKS}/{api.submit(api.ann)}/events"
    with ExitStack() as stack:
        for _ in range(20):
            opened = stack.enter_context(api.ann.stream("GET", path))
            assert opened.status_code == 200
        answer = api.ann.get(path)
        problem = refused(answer, 429, "token_limit_reached")
        assert (problem["limit"], problem["most"]) == ("max_streams_per_token", 20)
        assert answer.headers["Retry-After"]
        others = f"{TASKS}/{api.submit(api.bob)}/events"
        for _ in range(5):
            stack.enter_context(api.bob.stream("GET", others))
        answer = api.operator.get(path)
        assert refused(answer, 503, "server_limit_reached")["limit"] == "max_streams"
        assert answer.headers["Retry-After"]
        opened.close()
        eventually(lambda: not api.running.app.state.services.caps.streams.is_full)
        with api.ann.stream("GET", path) as again:
            assert again.status_code == 200
    eventually(lambda: not api.running.app.state.services.caps.streams._held)


def test_an_event_leaves_out_what_is_large(api: Api) -> None:
    """So that unread streams hold nothing but their last small event."""
    task_id = api.submit(api.ann, parameters={"text": LARGE, "n": 1})
    api.end(task_id, value=LARGE)
    [data] = [line for line in api.ann.get(f"{TASKS}/{task_id}/events").text.splitlines() if line.startswith("data: ")]
    task = json.loads(data.removeprefix("data: "))
    assert (task["status"], task["parameters"], task["result"]) == ("completed", None, None)
    assert task["left_out"] == ["parameters", "result"]


# ---- waiting ----


def test_the_waiting_request_beyond_a_tokens_limit_is_refused(api: Api) -> None:
    ids = [api.submit(api.ann) for _ in range(3)]
    held = api.running.app.state.services.caps.waiting._held
    eventually(lambda: not held)  # what an earlier test left waiting
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(api.ann.get, f"{TASKS}/{i}/result", params={"wait_seconds": PATIENCE}) for i in ids]
        eventually(lambda: held.total() == 3)
        answer = api.ann.get(f"{TASKS}/{ids[0]}/result", params={"wait_seconds": PATIENCE})
        assert refused(answer, 429, "token_limit_reached")["limit"] == "max_waiting_per_token"
        assert api.ann.get(f"{TASKS}/{ids[0]}/result").status_code == 202, "who doesn't wait is answered"
        for task_id in ids:
            api.end(task_id)
        assert [w.result(PATIENCE).status_code for w in waiting] == [200, 200, 200]
    assert api.ann.get(f"{TASKS}/{ids[0]}/result", params={"wait_seconds": 1}).status_code == 200


def test_a_request_keeps_its_place_among_the_waiting_while_its_task_changes(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken anew after each change, the place could go to another request, and the wait would end with an error."""
    task_id = api.submit(api.ann)
    cap = api.running.app.state.services.caps.waiting
    eventually(lambda: not cap._held)
    taken: list[object] = []
    take = cap.take
    monkeypatch.setattr(cap, "take", lambda *args, **named: (taken.append(args), take(*args, **named)))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(api.ann.get, f"{TASKS}/{task_id}/result", params={"wait_seconds": PATIENCE})
        eventually(lambda: taken)
        api.begin(task_id)
        api.end(task_id)
        assert waiting.result(PATIENCE).json()["status"] == "completed"
    assert len(taken) == 1


def test_polls_count_as_waiting_and_heartbeats_are_answered_all_the_same(
    server: Callable[..., Running], config: Config, db: psycopg.Connection, token: Callable[..., str]
) -> None:
    worker = bearer(token("worker"))
    url = server(config, max_waiting_per_token=1, max_wait_seconds=PATIENCE)

    def say(path: str, **body: Any) -> httpx.Response:
        return url.http.post(f"/internal/workers/{path}", json=body, headers=worker)

    first, second = (say("register", task_types=["x"]).json()["worker_id"] for _ in range(2))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(say, f"{first}/poll", available_capacity=1, wait_seconds=PATIENCE)
        eventually(lambda: bool(url.app.state.services.caps.waiting._held))
        refused(say(f"{second}/poll", available_capacity=1, wait_seconds=PATIENCE), 429, "token_limit_reached")
        assert say(f"{second}/poll", available_capacity=1).status_code == 200, "it doesn't wait"
        assert say(f"{second}/heartbeat", wait_seconds=0.05).status_code == 200
        db.execute("INSERT INTO tasks (name) VALUES ('x')")
        assert waiting.result(PATIENCE).json()["tasks"]


def test_requests_at_a_time_beyond_a_tokens_limit_are_refused(
    server: Callable[..., Running], config: Config, db: psycopg.Connection, token: Callable[..., str]
) -> None:
    viewer, other = bearer(token("viewer")), bearer(token("viewer"))
    url = server(config, max_requests_per_token=1)
    with ThreadPoolExecutor(1) as pool:
        with db.transaction():
            db.execute("LOCK TABLE tasks")
            slow = pool.submit(url.http.get, TASKS, headers=viewer)
            eventually(lambda: bool(url.app.state.services.caps.requests._held))
            refused(url.http.get("/api/v1/pauses", headers=viewer), 429, "token_limit_reached")
            assert url.http.get("/api/v1/pauses", headers=other).status_code == 200
        assert slow.result(PATIENCE).status_code == 200
    assert url.http.get("/api/v1/pauses", headers=viewer).status_code == 200


# ---- registrations ----


def test_registrations_beyond_a_tokens_limit_are_refused(
    server: Callable[..., Running], config: Config, db: psycopg.Connection, token: Callable[..., str]
) -> None:
    first, second = bearer(token("worker")), bearer(token("worker"))
    url = server(config, max_workers_per_token=2)

    def register(headers: dict[str, str]) -> httpx.Response:
        return url.http.post("/internal/workers/register", json={"task_types": ["x"]}, headers=headers)

    ids = [register(first).json()["worker_id"] for _ in range(2)]
    assert refused(register(first), 429, "token_limit_reached")["limit"] == "max_workers_per_token"
    assert register(second).status_code == 201
    assert url.http.delete(f"/internal/workers/{ids[0]}", headers=first).status_code == 204
    assert register(first).status_code == 201
    db.execute("UPDATE workers SET reported_status = 'dead'")
    for _ in range(18):
        assert register(first).status_code == 201, "the dead leave room for others"
        db.execute("UPDATE workers SET reported_status = 'dead'")
    refused(register(first), 429, "token_limit_reached")


# ---- lists ----


@pytest.mark.parametrize("path", [TASKS, "/api/v1/dead-letters"])
def test_a_list_leaves_out_large_values_and_says_which(api: Api, path: str) -> None:
    task_id = api.submit(api.ann, parameters={"text": LARGE}, tags={"a": "b"})
    small = api.submit(api.ann, parameters={"n": 1})
    error = f"Traceback\n{LARGE}\nValueError: no"
    for id_ in (task_id, small):
        api.end(id_, "dead_letter", error=error if id_ == task_id else "ValueError: no")
    api.db.execute("UPDATE tasks SET progress = %s WHERE id = %s", [Jsonb(LARGE), task_id])
    tasks = {task["task_id"]: task for task in api.ann.get(path).json()["tasks"]}
    large = tasks[task_id]
    assert (large["parameters"], large["progress"], large["tags"]) == (None, None, {"a": "b"})
    assert large["left_out"] == ["parameters", "error", "progress"]
    assert large["error"]["message"] == "ValueError: no"
    assert len(large["error"]["traceback"]) <= 1000
    assert (tasks[small]["parameters"], tasks[small]["left_out"]) == ({"n": 1}, [])
    whole = api.ann.get(f"{TASKS}/{task_id}").json()
    assert (whole["parameters"], whole["left_out"]) == ({"text": LARGE}, [])


def test_a_value_that_is_small_only_as_it_is_stored_is_left_out_too(api: Api) -> None:
    task_id = api.submit(api.ann, parameters={"text": "a" * 2_000})
    [(stored,)] = api.db.execute("SELECT pg_column_size(kwargs) FROM tasks WHERE id = %s", [task_id]).fetchall()
    assert stored < 2_000
    [task] = api.ann.get(TASKS).json()["tasks"]
    assert task["left_out"] == ["parameters"]


def test_a_page_ends_early_when_its_bytes_exceed_the_limit(api: Api) -> None:
    ids = [api.submit(api.ann, parameters={"text": "y" * 1_800}) for _ in range(15)]
    found: list[str] = []
    pages, cursor = 0, None
    while True:
        answer = api.ann.get(TASKS, params={"limit": 100, **({"cursor": cursor} if cursor else {})})
        assert len(answer.content) < 24_000
        found += [task["task_id"] for task in answer.json()["tasks"]]
        pages, cursor = pages + 1, answer.json()["next"]
        if cursor is None:
            break
    assert found == ids[::-1]
    assert pages > 1


def test_a_client_over_http_gets_whole_tasks_from_a_list(api: Api) -> None:
    text = api.client.create_token("whole", roles=["submitter"]).text
    with HttpClient(str(api.running), token=text) as client:
        ids = [client.submit_task("large", text=LARGE, registered_elsewhere=True) for _ in range(2)]
        listed = client.list_tasks()
        assert [task.id for task in listed] == ids[::-1]
        assert [task.kwargs for task in listed] == [{"text": LARGE}] * 2

"""Waiting for a task over HTTP: the long poll for its result, and the stream of its changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tasklib.testing import databases
from tests.server.api import Api, api_on
from tests.server.conftest import PATIENCE

TASKS = "/api/v1/tasks"


@pytest.fixture(scope="module")
def module_api(server_url: str, template_database: str) -> Iterator[Api]:
    """A server that waits longer than anybody here: what ends sooner was woken."""
    with databases.database(server_url, template_database) as url, api_on(url, max_wait_seconds=PATIENCE) as made:
        yield made


def _watched(api: Api, count: int = 1) -> None:
    """Return when so many wait for a task."""
    watch = api.running.app.state.services.watch
    until = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if len(watch._waiting) >= count:
            return
        until.wait(0.01)
    raise AssertionError("nobody waits")


# ---- the result ----


def test_a_finished_task_is_answered_at_once_however_it_ended(api: Api) -> None:
    done, dead, cancelled = api.submit(api.ann), api.submit(api.ann), api.submit(api.ann)
    api.end(done, value=[1, 2])
    api.end(dead, "dead_letter", error="Traceback\nValueError: no")
    api.end(cancelled, "cancelled")
    answers = [api.ann.get(f"{TASKS}/{i}/result", params={"wait_seconds": 50}) for i in (done, dead, cancelled)]
    assert [a.status_code for a in answers] == [200, 200, 200]
    assert [(a.json()["status"], a.json()["result"]) for a in answers] == [
        ("completed", [1, 2]),
        ("dead_letter", None),
        ("cancelled", None),
    ]
    assert answers[1].json()["error"]["message"] == "ValueError: no"


def test_without_waiting_an_unfinished_task_is_202(api: Api) -> None:
    task_id = api.submit()
    answer = api.viewer.get(f"{TASKS}/{task_id}/result")
    assert (answer.status_code, answer.json()["status"]) == (202, "pending")


def test_many_wait_and_each_is_answered_when_its_own_task_ends(api: Api) -> None:
    ids = [api.submit(api.ann) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(api.ann.get, f"{TASKS}/{i}/result", params={"wait_seconds": 10**6}) for i in ids]
        _watched(api, 8)
        for number, task_id in enumerate(ids):
            api.begin(task_id)
            api.end(task_id, value=number)
        answers = [w.result(PATIENCE) for w in waiting]
    assert [(a.status_code, a.json()["result"]) for a in answers] == [(200, number) for number in range(8)]


def test_a_task_that_is_deleted_meanwhile_is_404(api: Api) -> None:
    task_id = api.submit(api.ann)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(api.ann.get, f"{TASKS}/{task_id}/result", params={"wait_seconds": 50})
        _watched(api)
        api.db.execute("DELETE FROM tasks WHERE id = %s", [task_id])
        assert waiting.result(PATIENCE).status_code == 404


def test_a_wait_beyond_the_limit_is_shortened(server_url: str, template_database: str) -> None:
    with databases.database(server_url, template_database) as url, api_on(url, max_wait_seconds=0.1) as api:
        answer = api.operator.get(f"{TASKS}/{api.submit()}/result", params={"wait_seconds": 10**6})
        assert answer.status_code == 202


# ---- the stream ----


def _events(answer: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """The id and the task of each event."""
    event: dict[str, str] = {}
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if name:
            event[name] = value
        elif "data" in event:
            assert event["event"] == "task"
            yield event["id"], json.loads(event["data"])
            event = {}


def test_every_change_is_told_until_the_task_ends(api: Api) -> None:
    task_id = api.submit(api.ann)
    with api.ann.stream("GET", f"{TASKS}/{task_id}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = _events(answer)
        assert next(events)[1]["status"] == "pending"
        api.begin(task_id)
        assert next(events)[1]["status"] == "running"
        api.db.execute("UPDATE tasks SET progress = '{\"percent\": 40}' WHERE id = %s", [task_id])
        assert next(events)[1]["progress"] == {"percent": 40}
        api.operator.delete(f"{TASKS}/{task_id}")
        assert next(events)[1]["cancel_requested_at"]
        api.end(task_id, "cancelled")
        last_id, last = next(events)
        assert last["status"] == "cancelled"
        assert list(events) == [], "the stream ends with the task"
    again = api.ann.get(f"{TASKS}/{task_id}/events", headers={"Last-Event-ID": last_id})
    assert again.status_code == 204, "who knows the end need not come back"
    assert [task["status"] for _, task in _events(api.ann.get(f"{TASKS}/{task_id}/events"))] == ["cancelled"]


def test_who_comes_back_is_not_told_the_same_again(api: Api) -> None:
    task_id = api.submit(api.ann)
    with api.ann.stream("GET", f"{TASKS}/{task_id}/events") as answer:
        seen, _ = next(_events(answer))
    with api.ann.stream("GET", f"{TASKS}/{task_id}/events", headers={"Last-Event-ID": seen}) as answer:
        _watched(api)
        api.end(task_id, value=1)
        assert [task["status"] for _, task in _events(answer)] == ["completed"]


def test_a_silent_stream_is_kept_alive(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasklib.server.routes.waiting.KEEP_ALIVE_SECONDS", 0.05)
    with api.ann.stream("GET", f"{TASKS}/{api.submit(api.ann)}/events") as answer:
        assert next(line for line in answer.iter_lines() if line.startswith(":")) == ": still here"


def test_a_server_that_ends_does_not_wait_for_waiting_requests(server_url: str, template_database: str) -> None:
    with (
        databases.database(server_url, template_database) as url,
        ThreadPoolExecutor(2) as pool,
        api_on(url, max_wait_seconds=PATIENCE, shutdown_grace_seconds=PATIENCE) as api,
    ):
        task_id = api.submit(api.ann)
        result = pool.submit(api.ann.get, f"{TASKS}/{task_id}/result", params={"wait_seconds": PATIENCE})
        stream = pool.submit(api.bob.get, f"{TASKS}/{api.submit(api.bob)}/events")
        _watched(api, 2)
        # Ends the server while both still wait, before the callers hang up.
        api.running.server.should_exit = True
        assert result.result(PATIENCE).json()["status"] == "pending"
        assert stream.result(PATIENCE).status_code == 200

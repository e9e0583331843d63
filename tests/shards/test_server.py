"""The server and its dashboard over shards: every page answers, and says which shards it is without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from tasklib import Client, Config, task
from tasklib.http import HttpClient
from tasklib.tasks.ids import shard_of
from tests.server.conftest import Running, running
from tests.shards.conftest import without

NOT_ASKED = ("/assets", "/api/v1/workers/terms", "/live", "/logout")


@pytest.fixture
def server(config: Config) -> Iterator[Running]:
    with running(config) as server:
        yield server


def paths(server: Running) -> list[str]:
    """Everything that can be read without knowing an id."""
    routes = [r for r in server.app.routes if isinstance(r, APIRoute) and "GET" in (r.methods or ())]
    return sorted({r.path for r in routes if "{" not in r.path and not r.path.startswith(NOT_ASKED)})


def test_tasks_are_submitted_listed_and_changed_over_http(server: Running, client: Client) -> None:
    @task
    def work(n: int) -> None: ...

    with HttpClient(server) as http:
        ids = [http.submit(work.bind(n)) for n in range(12)]
        assert [t.id for t in http.list_tasks()] == ids[::-1]
        for id_ in ids:
            found = http.get_task(id_)
            assert found is not None
            assert http.cancel_task(id_).value == "cancelled"
    counts = [len(client.on_shard(shard.number).list_tasks()) for shard in client.config.shards]
    assert sum(counts) == 12
    assert max(counts) < 12


def test_every_page_answers(server: Running, client: Client) -> None:
    for n in range(8):
        client.submit_task("work", n=n, registered_elsewhere=True)
    asked = paths(server)
    assert {"/", "/queues", "/tasks", "/api/v1/tasks", "/metrics"} <= set(asked)
    for path in asked:
        answer = server.http.get(path)
        assert answer.status_code < 400 or answer.status_code == 422, (path, answer.text)
        assert "tasklib-missing-shards" not in answer.headers, path
    task_id = client.list_tasks()[0].id
    assert server.http.get(f"/tasks/{task_id}").status_code == 200


def test_answers_name_the_shards_that_they_are_without(config: Config, client: Client) -> None:
    for n in range(12):
        client.submit_task("work", n=n, registered_elsewhere=True)
    there = {t.id for t in client.list_tasks() if shard_of(t.id) != 2}
    with running(without(config, 2)) as server:
        answer = server.http.get("/api/v1/tasks")
        assert answer.headers["TaskLib-Missing-Shards"] == "2"
        body: dict[str, Any] = answer.json()
        assert {t["task_id"] for t in body["tasks"]} == {str(id_) for id_ in there}
        page = server.http.get("/tasks")
        assert "Shard 2 can&#39;t be reached" in page.text or "Shard 2 can't be reached" in page.text
        assert server.http.get("/health/ready").status_code == 200


def test_a_worker_over_http_is_told_to_use_one_shard(server: Running) -> None:
    answer = server.http.post("/internal/workers/register", json={"host": "h", "pid": 1})
    assert (answer.status_code, answer.json().get("code")) == (409, "several_shards"), answer.text

"""`/metrics` of a real server."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from tasklib import AsyncClient, Config, task
from tests.eventually import eventually
from tests.metrics.test_families import at, samples
from tests.server.conftest import Running, bearer
from tests.worker.watching import burst


async def test_a_scrape_shows_what_workers_did_and_what_waits(
    config: Config, db: psycopg.Connection, server: Callable[..., Running], token: Callable[..., str]
) -> None:
    @task
    async def metrics_work() -> None: ...

    client = AsyncClient(config)
    await client.submit_many(metrics_work, [{}] * 20)
    await burst(config, concurrency=5)
    await client.submit_task(metrics_work, queue="nobody serves this", priority="high")
    client.close()
    key = bearer(token("viewer"))
    answer = server(config).http.get("/metrics", headers=key)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = samples(answer.content)
    assert at(found, "task_outcomes_total", "medium", "completed") == 20
    assert at(found, "task_duration_seconds_count", "medium", "completed") == 20
    assert at(found, "queue_depth", "nobody serves this", "high") == 1
    assert at(found, "task_state_total", "completed") == 20


def test_metrics_are_for_viewers_unless_a_setting_opens_them(
    config: Config, server: Callable[..., Running], token: Callable[..., str]
) -> None:
    submitter = bearer(token("submitter"))
    closed = server(config)
    assert closed.http.get("/metrics").status_code == 401
    assert closed.http.get("/metrics", headers=submitter).status_code == 403
    opened = server(config, metrics_without_token=True)
    assert opened.http.get("/metrics").status_code == 200
    assert opened.http.get("/api/v1/tasks").status_code == 401, "nothing else is opened"
    assert server(config, metrics=False).http.get("/metrics", headers=bearer(token("admin"))).status_code == 404


async def test_what_workers_over_http_do_is_counted_by_the_server(
    config: Config, server: Callable[..., Running]
) -> None:
    @task
    async def metrics_over_http() -> None: ...

    @task(max_retries=0)
    async def metrics_fails_over_http() -> None:
        raise ValueError("no")

    running = server(config)
    client = AsyncClient(config)
    await client.submit_many(metrics_over_http, [{}] * 5)
    await client.submit_task(metrics_fails_over_http)
    client.close()
    await burst(config, server=str(running))
    eventually(lambda: _outcomes(running) == [5, 1], "the server has counted what it answered")
    found = samples(running.http.get("/metrics").content)
    assert at(found, "task_duration_seconds_count", "medium", "completed") == 5
    assert at(found, "tasks_failed_total", "error") == at(found, "tasks_dlq_total") == 1


def _outcomes(running: Running) -> list[float]:
    found = samples(running.http.get("/metrics").content)
    return [at(found, "task_outcomes_total", "medium", outcome) for outcome in ("completed", "dead_letter")]

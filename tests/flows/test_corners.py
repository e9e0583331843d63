"""Corners of flows: locked rows and a cancel, suspensions, options that can't hold, results without a client."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

import tasklib
from tasklib import Client, Config, InvalidOption, Results, chain, group, task
from tasklib.backends.http.backend import HttpBackend
from tasklib.errors import ConfigError
from tasklib.events import Events
from tasklib.stats import StatsCollector
from tasklib.store import durable
from tasklib.store.durable import Suspension
from tasklib.store.settle import Lease
from tasklib.tasks import registry
from tasklib.testing import drain, drain_sync
from tests.flows.rows import Rows


@task(name="corners.number")
async def number(x: int) -> int:
    return x


@task(name="corners.total")
async def total(numbers: Results[int]) -> int:
    return sum([n async for n in numbers])


@task(name="corners.total_sync")
def total_sync(numbers: Results[int]) -> int:
    return sum(numbers)


@task(name="corners.wrongly")
async def wrongly(numbers: Results[int]) -> int:
    return sum(numbers)


@pytest.fixture(autouse=True)
def functions() -> None:
    for function in (number, total, total_sync, wrongly):
        registry.register(function)


@pytest.fixture
def client(config: Config) -> Iterator[Client]:
    with Client(config) as client:
        yield client


def test_a_task_that_is_being_claimed_while_its_flow_is_cancelled_is_requested_to_stop(
    config: Config, client: Client, db: psycopg.Connection
) -> None:
    run = client.submit_flow(group([number.s(1), number.s(2)]))
    with psycopg.connect(config.database_url) as claiming:
        claiming.execute(
            "UPDATE tasks SET state = 'running', worker_id = 'w', locked_until = now() + interval '1 h', "
            "lease_token = 1 WHERE id = (SELECT min(id::text)::uuid FROM tasks)"
        )
        cancel = threading.Thread(target=client.cancel_flow, args=[run.id])
        cancel.start()
        waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%tasks%'"
        while cancel.is_alive() and not db.execute(waits).fetchall():
            pass
    cancel.join()
    found = db.execute("SELECT state, cancel_requested_at IS NOT NULL FROM tasks ORDER BY id").fetchall()
    assert found == [("running", True), ("cancelled", True)]


def test_a_durable_task_that_is_cancelled_by_its_suspension_reports_to_its_gates(db: psycopg.Connection) -> None:
    rows = Rows(db)
    flow, end = rows.flow(2)
    gate = rows.gate(flow, 1)
    first = rows.task(flow, "first", reports_to=[gate, end])
    join = rows.task(flow, "join", waits_for=gate, reports_to=[end])
    lease = Lease(str(first), rows.hold(first))
    db.execute("UPDATE tasks SET cancel_requested_at = now() WHERE id = %s", [first])
    assert rows.run(durable.suspend([Suspension(lease, None)], "w")) == {str(first): "cancelled"}
    rows.fold()
    assert rows.state(join) == "cancelled"
    assert rows.finished(flow)


@pytest.mark.parametrize("join", [total, total_sync], ids=["async", "sync"])
def test_results_are_read_over_the_connection_of_the_worker(
    config: Config, client: Client, join: tasklib.TaskFunction[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)
    run = client.submit_flow(group([number.s(n) for n in range(5)]).then(join.s()))
    drain_sync(config)
    assert client.wait_for(run.last, timeout=1) == 10


async def test_a_plain_loop_over_results_in_an_async_function_is_refused_with_what_to_write(
    config: Config, client: Client, db: psycopg.Connection
) -> None:
    client.submit_flow(group([number.s(1)]).then(wrongly.options(max_retries=0).bind()))
    await drain(config)
    ((error,),) = db.execute("SELECT error FROM tasks WHERE state = 'dead_letter'").fetchall()
    assert "async for" in error


@pytest.mark.parametrize("option", [{"unique": "pending"}, {"debounce": 5}, {"throttle": 5}])
def test_a_task_of_a_flow_is_neither_unique_nor_debounced_nor_throttled(
    client: Client, option: dict[str, object]
) -> None:
    with pytest.raises(InvalidOption, match=f"{next(iter(option))}= .* flow"):
        client.submit_flow(chain(number.options(**option).bind(1), number.s()))  # type: ignore[arg-type]  # one each


def test_a_worker_over_http_refuses_durable_functions_before_it_claims_anything(config: Config) -> None:
    @task(name="corners.durable", durable=True)
    async def lasting() -> None: ...

    backend = HttpBackend(config, Events(), StatsCollector(), "http://localhost:1", None)
    with pytest.raises(ConfigError, match="durable"):
        backend.serves(lasting)

"""`with limit(...)` in tasks of workers over HTTP: the same places as everywhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg

from tasklib import AsyncClient, Config, Limit, LimitNotFound, LimitTimeout, limit, task
from tasklib.backends.http.places import HttpPlaces
from tasklib.errors import DatabaseUnavailable
from tasklib.store.limits import PlaceRequest
from tasklib.store.settle import Lease
from tasklib.tasks import registry
from tests.server.conftest import Running
from tests.store.test_limited_claim import set_limit
from tests.worker import process_tasks
from tests.worker.test_limits import Watch
from tests.worker.watching import burst


async def test_blocks_of_workers_over_http_and_with_a_database_share_the_places(
    config: Config, db: psycopg.Connection, server: Callable[..., Running]
) -> None:
    set_limit(db, "stripe", max_running=3)
    watch = Watch()

    @task
    async def charge(n: int) -> None:
        async with limit("stripe"):
            await watch.run("stripe", n)

    address = str(server(config))
    async with AsyncClient(config) as client:
        await client.submit_many(charge, [{"n": n} for n in range(40)])
        workers = (burst(config, concurrency=6, server=address) for _ in range(2))
        await asyncio.gather(*workers, burst(config, concurrency=6))
    assert sorted(watch.ended) == list(range(40))
    assert watch.most["stripe"] <= 3
    assert db.execute("SELECT count(*) FROM places").fetchone() == (0,)


async def test_sync_functions_and_child_processes_enter_blocks_over_http(
    config: Config, db: psycopg.Connection, server: Callable[..., Running]
) -> None:
    set_limit(db, "stripe", max_running=1)
    registry.register(process_tasks.give_up_a_place)
    entered: list[str] = []

    @task
    def charge(account: str) -> None:
        with limit("stripe", key=account):
            entered.append(account)

    async with AsyncClient(config) as client:
        await client.submit_task(charge, account="ann")
        in_child = await client.submit_task(process_tasks.give_up_a_place)
        await burst(config, modules=["tests.worker.process_tasks"], server=str(server(config)))
        assert (await client.get_task(in_child)).result == ["free again"]
    assert entered == ["ann"]


async def test_over_http_an_operator_stores_the_limit(
    config: Config, db: psycopg.Connection, server: Callable[..., Running]
) -> None:
    seen: list[str] = []

    @task
    async def charge() -> None:
        try:
            async with limit(Limit("stripe", max_running=5), timeout=0):
                seen.append("entered")
        except (LimitNotFound, LimitTimeout) as e:
            seen.append(type(e).__name__)

    async with AsyncClient(config) as client:
        for most in (None, 0, 1):
            if most is not None:
                await client.set_limit("stripe", max_running=most)
            await client.submit_task(charge)
            await burst(config, server=str(server(config)))
    assert seen == ["LimitNotFound", "LimitTimeout", "entered"]


async def test_a_block_asks_the_server_until_it_answers() -> None:
    answers: list[Any] = [DatabaseUnavailable("away"), {"outcome": "full", "retry_in_seconds": None}]
    asked: list[Any] = []

    class Away:
        async def ask(self, method: str, path: str, body: Any) -> Any:
            asked.append((path, body["block"]))
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    places = HttpPlaces(Away())  # type: ignore[arg-type]
    answer = await places.take_place("w", Lease("1", 1), PlaceRequest("stripe", "", 1, block=3, nested=0))
    assert answer is not None
    assert answer.outcome == "full"
    assert asked == [("/w/place", 3)] * 2

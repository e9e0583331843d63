"""Workers and limits: what is declared is kept to, over several workers, through failures and losses."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from psycopg import Connection

from tasklib import AsyncClient, Config, Limit, Worker, queue, task
from tasklib.backends.postgres import lanes
from tests.eventually import soon
from tests.worker.watching import burst


class Watch:
    """How many run at a time, and in which order they began and ended. The first wait until `room` run together."""

    def __init__(self, room: int = 1) -> None:
        self.room = room
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.begun: list[int] = []
        self.ended: list[int] = []

    async def run(self, key: str, number: int) -> None:
        self.now[key] = self.now.get(key, 0) + 1
        self.most[key] = max(self.most.get(key, 0), self.now[key])
        self.begun.append(number)
        await soon(lambda: self.most[key] >= self.room, f"{self.room} run together")
        await asyncio.sleep(0.002)  # a chance for one too many
        self.ended.append(number)
        self.now[key] -= 1


async def test_a_declared_limit_holds_over_two_workers(config: Config) -> None:
    watch = Watch(room=3)

    @task(limits=[Limit(max_running=3)])
    async def limited(n: int) -> None:
        await watch.run("all", n)

    async with AsyncClient(config) as client:
        await client.submit_many(limited, [{"n": n} for n in range(60)])
        await asyncio.gather(burst(config, concurrency=10), burst(config, concurrency=10))
        assert sorted(watch.ended) == list(range(60))
        assert watch.most == {"all": 3}
        assert [(info.name, info.source, info.running) for info in await client.limits()] == [
            ("name:limited", "code", 0)
        ]


async def test_a_limit_by_key_is_shared_by_the_functions_that_name_it(config: Config) -> None:
    watch = Watch(room=2)

    @task(limits=[Limit("stripe", max_running=2, key="account")])
    async def charge(account: str, n: int) -> None:
        await watch.run(account, n)

    @task(limits=[Limit("stripe", key="account")])
    async def refund(account: str, n: int) -> None:
        await watch.run(account, n)

    async with AsyncClient(config) as client:
        for function in (charge, refund):
            await client.submit_many(function, [{"account": "ab"[n % 2], "n": n} for n in range(20)])
        await burst(config, concurrency=20)
        assert len(watch.ended) == 40
        assert watch.most == {"a": 2, "b": 2}


async def test_what_an_operator_changed_survives_a_deploy_until_it_is_reset(config: Config) -> None:
    @task(limits=[Limit("stripe", max_running=2)])
    async def charge() -> None: ...

    async with AsyncClient(config) as client:
        await client.sync_limits()
        assert await client.set_limit("stripe", max_running=7)
        assert not await client.set_limit("stripe", max_running=7)
        charge.limits = (Limit("stripe", max_running=3),)
        assert await client.sync_limits() == 1
        (info,) = await client.limits()
        assert (info.max_running, info.source, info.declared) == (7, "api", {"max_running": 3})
        assert await client.remove_limit("stripe")
        await client.sync_limits()
        assert [i.max_running for i in await client.limits()] == [None]
        assert await client.reset_limit("stripe")
        assert [(i.max_running, i.source) for i in await client.limits()] == [(3, "code")]


async def test_a_serial_queue_keeps_the_order_through_failures_over_two_workers(config: Config) -> None:
    watch = Watch()
    queue("ledger", serial=True)

    @task(queue="ledger", max_retries=3)
    async def book(n: int) -> None:
        await watch.run("ledger", n)
        if n % 7 == 3 and watch.begun.count(n) == 1:
            raise ValueError("the first time")

    fast = config.with_changes(base_retry_delay_seconds=0.05, retry_jitter=0.0)
    async with AsyncClient(fast) as client, AsyncExitStack() as workers:
        ids = [await client.submit_task(book, n=n) for n in range(15)]
        for _ in range(2):
            await workers.enter_async_context(Worker(fast, concurrency=5))
        for id_ in ids:
            await client.wait_for(id_, timeout=120)
    assert watch.most == {"ledger": 1}
    assert [n for n, after in zip(watch.begun, [*watch.begun[1:], -1], strict=True) if n != after] == list(range(15))


async def test_serial_keys_keep_their_orders_beside_each_other(config: Config) -> None:
    watch = Watch()

    @task(serial_key="account")
    async def book(account: str, n: int) -> None:
        await watch.run(account, n)

    async with AsyncClient(config) as client:
        await client.submit_many(book, [{"account": "abc"[n % 3], "n": n} for n in range(30)])
        await asyncio.gather(burst(config, concurrency=10), burst(config, concurrency=10))
    assert watch.most == {"a": 1, "b": 1, "c": 1}
    for start in range(3):
        assert [n for n in watch.begun if n % 3 == start] == list(range(start, 30, 3))


async def test_a_freed_place_wakes_a_worker_that_sleeps(config: Config) -> None:
    """The worker that frees the place can't use it: it doesn't know the task that waits."""
    begun, release = asyncio.Event(), asyncio.Event()

    @task(name="first", limits=[Limit("one", max_running=1)])
    async def first() -> None:
        begun.set()
        await release.wait()

    @task(name="second", limits=[Limit("one")])
    async def second() -> None: ...

    slow_poll = config.with_changes(poll_interval_seconds=300)
    async with (
        AsyncClient(config) as client,
        Worker(slow_poll, names=["first"], concurrency=1),
        Worker(slow_poll, names=["second"], concurrency=1),
    ):
        await client.submit_task(first)
        await begun.wait()
        waits = await client.submit_task(second)
        explanation = await client.explain_task(waits)
        release.set()
        await client.wait_for(waits, timeout=120)
    assert [reason.code for reason in explanation.reasons] == ["limit_reached"]


async def test_a_task_of_a_limited_name_is_found_right_after_another(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy worker looks for tasks of limited names now and then: also before it sleeps."""
    monkeypatch.setattr(lanes, "_NAME_EVERY_SECONDS", 1e9)

    @task(limits=[Limit("one", max_running=1)])
    async def behind() -> None: ...

    slow_poll = config.with_changes(poll_interval_seconds=300)
    async with AsyncClient(config) as client, Worker(slow_poll, concurrency=1):
        for _ in range(3):
            await client.wait_for(await client.submit_task(behind), timeout=120)


async def test_a_worker_that_claims_behind_limits_learns_of_limited_names(config: Config, db: Connection) -> None:
    @task
    async def behind() -> None: ...

    slow_poll = config.with_changes(poll_interval_seconds=300)
    async with AsyncClient(config) as client, Worker(slow_poll, concurrency=1):
        await client.wait_for(await client.submit_task(behind, serial_key="a"), timeout=120)
        db.execute("INSERT INTO limits (name, max_running) VALUES ('one', 1)")
        db.execute("INSERT INTO limited_names (name, uses) VALUES ('behind', '[{\"limit\": \"one\"}]')")
        await client.wait_for(await client.submit_task(behind), timeout=120)


async def test_shares_take_turns(config: Config) -> None:
    begun: list[str] = []

    @task
    async def work(tenant: str) -> None:
        begun.append(tenant)

    async with AsyncClient(config) as client:
        await client.submit_many(work, [{"tenant": "big"}] * 30, share="big")
        await client.submit_many(work, [{"tenant": "small"}] * 3, share="small")
        await burst(config, concurrency=1)
    assert len(begun) == 33
    assert begun.index("small") <= 1
    assert [place for place, tenant in enumerate(begun) if tenant == "small"][-1] <= 5


async def test_plain_tasks_and_tasks_behind_limits_take_turns(config: Config) -> None:
    begun: list[str] = []

    @task
    async def plain() -> None:
        begun.append("plain")

    @task(limits=[Limit(max_running=100)])
    async def limited() -> None:
        begun.append("limited")

    async with AsyncClient(config) as client:
        await client.submit_many(plain, [{}] * 20, priority=50)
        await client.submit_many(limited, [{}] * 20, priority=-10)
        await burst(config.with_changes(max_prefetch=0), concurrency=1)
    assert sorted(begun[:6]) == ["limited"] * 3 + ["plain"] * 3

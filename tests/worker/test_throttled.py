"""Tasks that another system refused: they hold their limits over the whole fleet, and use no retry."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import Connection

from tasklib import AsyncClient, Config, InvalidOption, Limit, Throttled, task
from tests.worker.watching import burst


async def test_a_throttled_task_holds_its_limit_for_everybody_and_uses_no_retry(config: Config) -> None:
    refused: list[int] = []

    @task(limits=[Limit("stripe", max_running=1, key="account")], max_retries=0)
    async def charge(account: str, n: int) -> None:
        if account == "a":
            refused.append(n)
            raise Throttled(retry_after=3600)

    @task(limits=[Limit("stripe", key="account")])
    async def refund(account: str) -> None: ...

    async with AsyncClient(config) as client:
        first, second = await client.submit_many(charge, [{"account": "a", "n": n} for n in (1, 2)])
        held, free = await client.submit_task(refund, account="a"), await client.submit_task(refund, account="b")
        await burst(config, concurrency=4)
        assert refused == [1]
        states = {id_: (await client.get_task(id_)).state for id_ in (first, second, held, free)}
        assert [states[id_] for id_ in (first, second, held, free)] == ["failed", "pending", "pending", "completed"]
        throttled = await client.get_task(first)
        assert (throttled.retry_count, throttled.history[-1]["outcome"]) == (0, "throttled")
        (stripe,) = await client.limits()
        assert stripe.blocked_until is not None
        assert (await client.explain_task(held)).reasons[0].code == "limit_blocked"


async def test_throttled_may_name_the_limit_and_one_without_a_row_is_held_too(config: Config) -> None:
    ran: list[str] = []

    @task
    async def crawl() -> None:
        raise Throttled(timedelta(hours=1), limit="site", key="example.org")

    @task(limits=[Limit("site", key="host")])
    async def fetch(host: str) -> None:
        ran.append(host)

    async with AsyncClient(config) as client:
        await client.submit_task(crawl)
        await burst(config)
        await client.submit_many(fetch, [{"host": host} for host in ("example.org", "example.com", "example.org.uk")])
        await burst(config, concurrency=4)
        assert sorted(ran) == ["example.com", "example.org.uk"]


async def test_of_two_that_are_throttled_the_longer_time_counts(config: Config, db: Connection) -> None:
    @task(limits=[Limit("stripe", max_running=2)])
    async def charge(seconds: float) -> None:
        raise Throttled(seconds)

    async with AsyncClient(config) as client:
        await client.submit_many(charge, [{"seconds": seconds} for seconds in (3600, 60)])
        await burst(config, concurrency=2)
        (stripe,) = await client.limits()
        now = db.execute("SELECT now()").fetchone()
        assert stripe.blocked_until is not None
        assert now is not None
        assert stripe.blocked_until - now[0] > timedelta(minutes=50)


@pytest.mark.parametrize(
    "wrong",
    [
        {"retry_after": -1},
        {"retry_after": float("inf")},
        {"retry_after": True},
        {"retry_after": 1, "limit": ""},
        {"retry_after": 1, "limit": "a\x02b"},
        {"retry_after": 1, "key": "acme"},
    ],
)
def test_throttled_refuses_what_it_could_not_hold(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidOption):
        Throttled(**wrong)  # type: ignore[arg-type]


async def test_a_throttled_task_that_runs_at_most_once_is_not_repeated(config: Config) -> None:
    @task(at_most_once=True)
    async def charge() -> None:
        raise Throttled(0)

    async with AsyncClient(config) as client:
        task_id = await client.submit_task(charge)
        await burst(config)
        assert (await client.get_task(task_id)).state == "dead_letter"

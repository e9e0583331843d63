"""Durable functions on a worker: steps are done once, waiting takes no slot, and whatever happens, they go on."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import psycopg
import pytest

from tasklib import (
    AsyncClient,
    Config,
    InvalidTaskFunction,
    Reject,
    RetryPolicy,
    Task,
    continue_as_new,
    current_task,
    patched,
    sleep,
    step,
    sync,
    task,
    wait_for_signal,
)
from tasklib.db.database import AsyncDatabase
from tasklib.store import durable
from tasklib.tasks.durable_driving import run
from tests.eventually import soon
from tests.worker.watching import burst

AT_ONCE = RetryPolicy(base_seconds=0)


@pytest.fixture
async def client(config: Config) -> AsyncClient:
    return AsyncClient(config)


class Calls(list[str]):
    """What was called, in order."""

    def one(self, name: str) -> Callable[[], str]:
        def call() -> str:
            self.append(name)
            return name

        return call


@pytest.fixture
def calls() -> Calls:
    return Calls()


async def row(client: AsyncClient, task_id: UUID) -> Task:
    found = await client.get_task(task_id)
    assert found is not None
    return found


def skip_time(db: psycopg.Connection) -> None:
    """All sleeps and timers are over."""
    db.execute("UPDATE tasks SET scheduled_at = now() - interval '1 second' WHERE state = 'pending'")
    db.execute(
        "UPDATE steps SET result = jsonb_build_object('value', now() - interval '1 second') "
        "WHERE kind IN ('sleep', 'timer', 'deadline')"
    )


async def send(config: Config, task_id: UUID, name: str, payload: str = "null") -> str | None:
    return await AsyncDatabase(config).run(durable.send_signal(task_id, name, payload, key=None, sender="me"))


async def test_a_step_is_done_once_though_the_function_runs_again(
    config: Config, client: AsyncClient, calls: Calls
) -> None:
    @task(durable=True, retry_policy=AT_ONCE)
    async def order(number: int) -> list[str]:
        first = await step("first", calls.one("first"))
        calls.append(f"attempt {current_task().attempt}")
        if current_task().attempt == 1:
            raise ValueError("no luck")
        return [first, await step("second", calls.one("second"))]

    task_id = await client.submit_task(order, number=1)
    await burst(config)
    assert calls == ["first", "attempt 1", "attempt 2", "second"]
    assert (await row(client, task_id)).result == ["first", "second"]


async def test_async_and_typed_results_come_back_as_their_types(config: Config, client: AsyncClient) -> None:
    @dataclass
    class Payment:
        amount: int
        at: dt.datetime

    moment = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)

    async def charge(amount: int, *, currency: str) -> Payment:
        return Payment(amount, moment)

    seen: list[object] = []

    @task(durable=True, retry_policy=AT_ONCE)
    async def order() -> None:
        seen.append(await step("charge", charge, 5, currency="EUR"))
        if len(seen) == 1:
            raise ValueError

    charge.__annotations__["return"] = Payment
    await client.submit_task(order)
    await burst(config)
    assert seen == [Payment(5, moment)] * 2


async def test_a_sleep_gives_the_slot_back_and_uses_no_retry(
    config: Config, client: AsyncClient, db: psycopg.Connection, calls: Calls
) -> None:
    @task(durable=True, max_retries=0)
    async def order() -> str:
        await step("before", calls.one("before"))
        await sleep(dt.timedelta(days=3))
        return await step("after", calls.one("after"))

    task_id = await client.submit_task(order)
    await burst(config)
    suspended = await row(client, task_id)
    assert (suspended.state, suspended.retry_count, suspended.awaited_signals) == ("pending", 0, [])
    assert dt.timedelta(days=2) < suspended.scheduled_at - suspended.created_at < dt.timedelta(days=4)
    assert calls == ["before"]
    skip_time(db)
    await burst(config)
    assert (await row(client, task_id)).result == "after"
    assert calls == ["before", "after"]


async def test_a_sleep_may_last_until_a_moment(config: Config, client: AsyncClient) -> None:
    moment = dt.datetime(2040, 1, 1, tzinfo=dt.UTC)

    @task(durable=True)
    async def order() -> str:
        await sleep(dt.datetime(2020, 1, 1, tzinfo=dt.UTC), name="past")
        await sleep(moment)
        return "done"

    task_id = await client.submit_task(order)
    await burst(config)
    assert (await row(client, task_id)).scheduled_at == moment


async def test_a_signal_is_waited_for_without_a_slot(config: Config, client: AsyncClient) -> None:
    @task(durable=True)
    async def order() -> object:
        return [await wait_for_signal("paid", key=i) for i in range(2)]

    task_id = await client.submit_task(order)
    await burst(config)
    assert (await row(client, task_id)).awaited_signals == ["paid"]
    assert await send(config, task_id, "paid", '{"by": "ann"}') == "sent"
    await burst(config)
    assert (await row(client, task_id)).state == "pending"
    assert await send(config, task_id, "paid", "2") == "sent"
    await burst(config)
    assert (await row(client, task_id)).result == [{"by": "ann"}, 2]


async def test_a_signal_that_comes_before_the_task_runs_is_kept(config: Config, client: AsyncClient) -> None:
    @task(durable=True)
    async def order() -> object:
        return await wait_for_signal("paid")

    task_id = await client.submit_task(order)
    await send(config, task_id, "paid", "1")
    await burst(config)
    assert (await row(client, task_id)).result == 1


async def test_waiting_for_a_signal_ends_at_its_timeout(
    config: Config, client: AsyncClient, db: psycopg.Connection
) -> None:
    @task(durable=True)
    async def order() -> str:
        try:
            return str(await wait_for_signal("paid", timeout=3600))
        except TimeoutError as e:
            await sleep(60)
            return str(e)

    task_id = await client.submit_task(order)
    await burst(config)
    skip_time(db)
    await burst(config)
    await send(config, task_id, "paid", "1")  # too late: the timeout is on record
    skip_time(db)
    await burst(config)
    assert (await row(client, task_id)).result == "no signal 'paid' came in time"


async def test_branches_wait_for_whichever_comes_first(
    config: Config, client: AsyncClient, db: psycopg.Connection, calls: Calls
) -> None:
    def others_wait() -> bool:
        return run().waits.until is not None and run().waits.signals == ("paid",)

    async def slow() -> str:
        await soon(others_wait, "the other branches wait")
        return calls.one("slow")()

    @task(durable=True)
    async def order() -> object:
        async def nap() -> str:
            await sleep(3600)
            return "slept"

        async with asyncio.TaskGroup() as group:
            branches = [
                group.create_task(nap()),
                group.create_task(wait_for_signal("paid")),
                group.create_task(step("slow", slow)),
            ]
        return [branch.result() for branch in branches]

    task_id = await client.submit_task(order)
    await burst(config)
    suspended = await row(client, task_id)
    assert (suspended.state, suspended.awaited_signals) == ("pending", ["paid"])
    assert calls == ["slow"], "a step under way is finished and recorded before the run is suspended"
    await send(config, task_id, "paid", "1")
    await burst(config)
    skip_time(db)
    await burst(config)
    assert (await row(client, task_id)).result == ["slept", 1, "slow"]
    assert calls == ["slow"]


async def test_a_function_that_catches_everything_is_suspended_all_the_same(
    config: Config, client: AsyncClient, calls: Calls
) -> None:
    @task(durable=True)
    async def order() -> str:
        try:
            await sleep(3600)
        except BaseException:
            calls.append("caught")
        return "done"

    task_id = await client.submit_task(order)
    await burst(config)
    assert (await row(client, task_id)).state == "pending"


async def test_the_same_name_twice_in_one_run_needs_a_key(config: Config, client: AsyncClient, calls: Calls) -> None:
    @task(durable=True, max_retries=0)
    async def twice() -> None:
        await step("charge", calls.one("1"))
        await step("charge", calls.one("2"))

    @task(durable=True)
    async def keyed() -> list[str]:
        return [await step("charge", calls.one(f"key {i}"), key=i) for i in range(2)]

    wrong, right = await client.submit_task(twice), await client.submit_task(keyed)
    await burst(config)
    assert "occurs twice in one run of twice" in str((await row(client, wrong)).error)
    assert (await row(client, right)).result == ["key 0", "key 1"]


async def test_a_step_has_retries_of_its_own(config: Config, client: AsyncClient, calls: Calls) -> None:
    def shaky() -> int:
        calls.append("try")
        if len(calls) < 3:
            raise ConnectionError("no luck")
        return len(calls)

    def hopeless() -> None:
        calls.append("hopeless")
        raise Reject("never")

    @task(durable=True, max_retries=0, retry_policy=AT_ONCE)
    async def order() -> int:
        tries = await step("shaky", shaky, retries=5)
        await step("hopeless", hopeless, retries=5)
        return tries

    task_id = await client.submit_task(order)
    await burst(config)
    assert calls == ["try", "try", "try", "hopeless"]
    assert (await row(client, task_id)).retry_count == 0


async def test_a_transactional_step_commits_its_writes_with_its_record(
    config: Config, client: AsyncClient, db: psycopg.Connection
) -> None:
    db.execute("CREATE TABLE booked (number int)")

    async def book(connection: psycopg.AsyncConnection, number: int) -> int:
        await connection.execute("INSERT INTO booked VALUES (%s)", (number,))
        return number

    async def fails(connection: psycopg.AsyncConnection) -> None:
        await connection.execute("INSERT INTO booked VALUES (0)")
        raise ValueError("no luck")

    @task(durable=True, max_retries=1, retry_policy=AT_ONCE)
    async def order() -> int:
        number: int = await step("book", book, 5, transactional=True)
        await step("fails", fails, transactional=True)
        return number

    await client.submit_task(order)
    await burst(config)
    assert db.execute("SELECT number FROM booked").fetchall() == [(5,)]


async def test_sync_functions_are_durable_too(
    config: Config, client: AsyncClient, db: psycopg.Connection, calls: Calls
) -> None:
    db.execute("CREATE TABLE booked (number int)")

    def book(connection: psycopg.Connection, number: int) -> int:
        connection.execute("INSERT INTO booked VALUES (%s)", (number,))
        return number

    @task(durable=True)
    def order() -> object:
        first = sync.step("first", calls.one("first"))
        sync.sleep(3600)
        booked = sync.step("book", book, 5, transactional=True)
        new = sync.patched("new-tax")
        return [first, booked, new, sync.wait_for_signal("paid", timeout=3600)]

    task_id = await client.submit_task(order)
    await burst(config)
    skip_time(db)
    await burst(config)
    assert (await row(client, task_id)).awaited_signals == ["paid"]
    await send(config, task_id, "paid", "1")
    await burst(config)
    assert (await row(client, task_id)).result == ["first", 5, True, 1]
    assert calls == ["first"]
    assert db.execute("SELECT number FROM booked").fetchall() == [(5,)]


async def test_continuing_as_new_starts_over_with_other_arguments(
    config: Config, client: AsyncClient, calls: Calls
) -> None:
    @task(durable=True)
    async def pages(number: int) -> int:
        await step("page", calls.one(f"page {number}"))
        if number < 3:
            continue_as_new(number=number + 1)
        return number

    task_id = await client.submit_task(pages, number=1)
    await burst(config)
    assert calls == ["page 1", "page 2", "page 3"]
    assert (await row(client, task_id)).result == 3


async def test_a_run_that_had_got_further_stays_on_the_old_branch(
    config: Config, client: AsyncClient, db: psycopg.Connection
) -> None:
    is_changed = False

    @task(durable=True)
    async def order() -> str:
        branch = "old"
        if is_changed and await patched("new-tax"):
            branch = "new"
        await sleep(3600)
        return branch

    old = await client.submit_task(order)
    await burst(config)
    is_changed = True
    new = await client.submit_task(order)
    await burst(config)
    skip_time(db)
    await burst(config)
    assert [(await row(client, each)).result for each in (old, new)] == ["old", "new"]


async def test_a_task_past_its_deadline_is_given_up(
    config: Config, client: AsyncClient, db: psycopg.Connection
) -> None:
    @task(durable=True, deadline_seconds=86400)
    async def order() -> None:
        await wait_for_signal("paid")

    task_id = await client.submit_task(order)
    await burst(config)
    suspended = await row(client, task_id)
    assert suspended.scheduled_at - suspended.created_at < dt.timedelta(days=2), "it wakes at its deadline"
    skip_time(db)
    await burst(config)
    given_up = await row(client, task_id)
    assert given_up.state == "dead_letter"
    assert "not finished within its deadline of 86400 s" in str(given_up.error)


async def test_too_many_or_too_large_records_are_refused(
    config: Config, client: AsyncClient, monkeypatch: pytest.MonkeyPatch, calls: Calls
) -> None:
    monkeypatch.setattr("tasklib.tasks.durable_run.MAX_STEPS", 2)

    @task(durable=True)
    async def many() -> None:
        for i in range(3):
            await step("each", calls.one(str(i)), key=i)

    @task(durable=True, max_retries=0)
    async def large() -> None:
        await step("large", lambda: "x" * 300_000)

    too_many, too_large = await client.submit_task(many), await client.submit_task(large)
    await burst(config)
    assert "continue_as_new()" in str((await row(client, too_many)).error)
    assert calls == ["0", "1"], "refused before its function is called"
    assert "the limit is 262,144" in str((await row(client, too_large)).error)


async def test_steps_outside_of_a_durable_task_are_refused(config: Config, client: AsyncClient, calls: Calls) -> None:
    @task(max_retries=0)
    async def plain() -> None:
        await step("charge", calls.one("charge"))

    task_id = await client.submit_task(plain)
    await burst(config)
    assert "in a task that is not durable" in str((await row(client, task_id)).error)
    with pytest.raises(RuntimeError, match="outside of a task"):
        await sleep(1)


def test_what_a_durable_function_cannot_be() -> None:
    for settings in ({"at_most_once": True}, {"executor": "process"}, {"transactional": True}):
        with pytest.raises(InvalidTaskFunction, match="durable"):
            task(durable=True, **settings)(lambda connection: None)
    with pytest.raises(InvalidTaskFunction, match="is for durable functions"):
        task(deadline_seconds=5)(lambda: None)

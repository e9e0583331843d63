"""Right and wrong calls of the API, for type checkers only: each line that ends in `# E` must be reported, no other.

`test_calls.py` runs mypy --strict and pyright over it. Nothing here is run.
"""

# ruff: noqa: B018

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, assert_type

import asyncpg
import psycopg
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from typing_extensions import Unpack

import tasklib
from tasklib import (
    Approval,
    AsyncClient,
    Batch,
    Breaker,
    Client,
    Config,
    Flow,
    Limit,
    Schedule,
    SettledTask,
    Shard,
    SubmitOptions,
    SyncTaskId,
    Task,
    TaskFunction,
    TaskId,
    TaskState,
    Throttled,
    Worker,
    chain,
    current_task,
    gather,
    group,
    limit,
    queue,
    spawned,
    step,
    submit_many,
    submit_task,
    sync,
    task,
    wait_for,
)
from tasklib.tasks.flows import Node


class Order(BaseModel):
    number: int


# ---- task functions ----


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task
async def place(number: int) -> Order:
    return Order(number=number)


@task(max_retries=5, priority="high", executor="process", non_retriable=(ValueError,), tags={"a": 1})
def due(order: Order) -> date:
    return date.today()


@task(transactional=True)
def ship(connection: psycopg.Connection, order: int) -> str:
    return f"order {order}"


@task(transactional=True, queue="post")
async def ship_later(connection: psycopg.AsyncConnection, order: int, *, express: bool = False) -> str:
    return f"order {order}"


@task(at_most_once=True, transactional=False)
def charge(card: str) -> None: ...


@task(max_retires=5)  # E
def misspelt(n: int) -> int:
    return n


@task(executor="fork")  # E
def nowhere(n: int) -> int:
    return n


@task(max_retries="5")  # E
def not_a_number(n: int) -> int:
    return n


@task(transactional=True)  # E
def wrong_connection(connection: psycopg.AsyncConnection, order: int) -> None: ...


@task(transactional=True)  # E
def no_connection() -> None: ...


# ---- calling is calling ----


async def calling(connection: psycopg.Connection) -> None:
    assert_type(add(1, b=2), int)
    assert_type(await place(1), Order)
    assert_type(ship(connection, order=1), str)
    add("1")  # E
    add()  # E
    ship(order=1)  # E


# ---- submitting ----


async def submitting() -> None:
    assert_type(await add.submit(1, b=2), TaskId[int])
    assert_type(await place.submit(number=1), TaskId[Order])
    assert_type(await due.submit(Order(number=1)), TaskId[date])
    assert_type(await ship.submit(order=7), TaskId[str])
    assert_type(await ship_later.submit(7, express=True), TaskId[str])
    assert_type(await charge.submit(card="visa"), TaskId[None])
    await add.submit("one")  # E
    await add.submit(c=1)  # E
    await add.submit()  # E
    await add.submit(1, priority=5)  # E
    await place.submit(numbr=1)  # E
    await due.submit({"number": 1})  # E
    await ship.submit(ordr=7)  # E
    await ship_later.submit(7, True)  # E
    add.submit(1).hex  # E


def submitting_in_synchronous_code() -> None:
    assert_type(add.submit_sync(1), SyncTaskId[int])
    assert_type(place.submit_sync(1), SyncTaskId[Order])
    assert_type(ship.submit_sync(order=7), SyncTaskId[str])
    add.submit_sync(b=2)  # E
    ship.submit_sync("seven")  # E


# ---- options ----


async def with_options() -> None:
    urgent = place.options(priority="high", delay_seconds=60, tags={"a": 1}, required_capabilities=["gpu"])
    assert_type(await urgent.submit(number=1), TaskId[Order])
    assert_type(urgent.options(queue="mail").submit_sync(1), SyncTaskId[Order])
    await add.options(scheduled_at=datetime.now(UTC), idempotency_key="k", max_retries=0, timeout_seconds=1).submit(1)
    await urgent.submit("one")  # E
    add.options(priorty=1)  # E
    add.options(delay_seconds="60")  # E
    add.options(scheduled_at="tomorrow")  # E
    add.options(queue="mail").options(max_retries="3")  # E
    urgent.submit_sync(1, queue="mail")  # E


async def passing_options_on(to: int, **options: Unpack[SubmitOptions]) -> TaskId[Order]:
    return await place.options(**options).submit(to)


async def with_options_passed_on() -> None:
    await passing_options_on(1, priority="high", queue="mail")
    await passing_options_on(1, qeue="mail")  # E


# ---- inside a transaction ----


async def in_transactions(
    connection: psycopg.Connection,
    async_connection: psycopg.AsyncConnection,
    session: Session,
    async_session: AsyncSession,
    asyncpg_connection: asyncpg.Connection,
) -> None:
    assert_type(add.on(connection).submit(1), SyncTaskId[int])
    assert_type(place.on(session).submit(number=1), SyncTaskId[Order])
    assert_type(await add.on(async_connection).submit(1), TaskId[int])
    assert_type(await ship.on(async_session).submit(order=1), TaskId[str])
    await place.on(asyncpg_connection).submit(1)
    assert_type(ship.options(queue="post").on(connection).submit(7), SyncTaskId[str])
    add.on("postgresql://")  # E
    add.on(connection).submit("one")  # E
    await add.on(connection).submit(1)  # E
    add.on(async_session).submit(1).result()  # E
    await ship.on(async_connection).submit(async_connection, order=1)  # E


# ---- ids ----


async def ids(task_id: TaskId[date], plain: uuid.UUID) -> None:
    assert_type(await task_id.result(timeout=10), date)
    assert_type(await task_id.wait(), TaskState)
    assert_type(await task_id.get(), Task)
    assert_type(await task_id.cancel(), TaskState)
    assert_type(task_id.sync.result(), date)
    assert_type(await wait_for(task_id), date)
    assert_type(await wait_for(plain, 5), Any)
    assert_type(await TaskId[int](plain).result(), int)
    stored: dict[uuid.UUID, str] = {task_id: task_id.hex}
    wider: TaskId[object] = task_id
    print(stored, wider, task_id == plain, await task_id.progress())
    (await task_id.result()).number  # E
    task_id.result(timeout=10).year  # E
    await task_id.result("10")  # E
    await task_id.sync.get()  # E
    number: int = await task_id.result()  # E
    print(number)


def ids_in_synchronous_code(task_id: SyncTaskId[Order]) -> None:
    assert_type(task_id.result(timeout=10), Order)
    assert_type(task_id.get(), Task)
    assert_type(sync.wait_for(task_id), Order)
    task_id.result().nmber  # E
    task_id.reslt()  # E


# ---- the calls of the module, and of clients ----


async def module_level() -> None:
    assert_type(await submit_task(place, number=1, priority="high"), TaskId[Order])
    assert_type(await submit_task("place", number=1, registered_elsewhere=True), TaskId[Any])
    assert_type(await submit_many(add, [{"a": 1}], queue="mail"), list[TaskId[int]])
    assert_type(await submit_many([place.bind(1), place.options(queue="mail").bind(2)]), list[TaskId[Order]])
    assert_type(await tasklib.get_task("id"), Task | None)
    assert_type(await tasklib.list_tasks(state="pending", limit=5), list[Task])
    assert_type(await tasklib.cancel_task("id"), TaskState)
    await submit_task(place, number=1, delay_seconds="60")  # E
    await submit_task(print, number=1)  # E
    await submit_many(add, [{"a": 1}], qeue="mail")  # E
    await submit_many([add])  # E
    await submit_many([add.bind("one")])  # E
    await tasklib.list_tasks(stat="pending")  # E
    tasklib.get_task("id").state  # E
    tasklib.submit_task_sync(place, number=1)  # E


def module_level_in_synchronous_code() -> None:
    assert_type(tasklib.sync.submit_task(place, number=1), SyncTaskId[Order])
    assert_type(tasklib.sync.submit_many(add, [{"a": 1}]), list[SyncTaskId[int]])
    assert_type(tasklib.sync.get_task("id"), Task | None)
    tasklib.sync.list_tasks(limit="5")  # E
    tasklib.sync.submit_tsk(place)  # E


async def clients() -> None:
    with Client("postgresql://") as client:
        assert_type(client.submit_task(place, number=1), SyncTaskId[Order])
        assert_type(client.submit(add.bind(1)), SyncTaskId[int])
        assert_type(client.wait_for(client.submit_task(add, a=1)), int)
        client.submit_task(place, number=1, tags="a")  # E
        client.submit(add)  # E
    async with AsyncClient() as async_client:
        assert_type(await async_client.submit_many(add, [{"a": 1}]), list[TaskId[int]])
        assert_type(await async_client.submit(place.bind(1)), TaskId[Order])
        assert_type(await async_client.get_task("id"), Task | None)
        async_client.get_task("id").state  # E
        await async_client.submit(place.bind("one"))  # E


# ---- types of one's own ----


def schedule(function: TaskFunction[[int], str]) -> None:
    function.submit_sync(1)


def retried(function: TaskFunction[..., Any]) -> Callable[..., Any]:
    return function


@task
def text(number: int) -> str:
    return str(number)


def own_types() -> None:
    schedule(text)
    retried(ship)
    retried(place)
    schedule(add)  # E
    schedule(place)  # E
    assert_type(current_task().attempt, int)
    Worker("postgresql://", concurrency=5).run_sync()
    Worker(concurency=5)  # E


# ---- flows ----


@task
def joined(numbers: list[int]) -> str:
    return str(numbers)


async def charged(number: int) -> Order:
    return Order(number=number)


async def flows(order_task: TaskFunction[..., None]) -> None:
    assert_type(await (await chain(order_task.s(), spawned(add.s(1), of=add), joined.s()).submit()).result(), str)
    flow: Flow[str] = Flow("f")
    node = flow.add(order_task.s())
    assert_type(spawned(node, of=add), Node[list[int]])
    assert_type(await current_task().spawn(add.s(1), key="a"), TaskId[int])
    assert_type(await current_task().spawn_many({1: place.s(1)}), dict[int, TaskId[Order]])
    assert_type(current_task().spawn_sync(add.s(1), key=1), SyncTaskId[int])
    assert_type(await gather([add.s(1), add.s(2)]), list[int])
    assert_type(await gather(add.s(1), place.s(2)), tuple[int, Order])
    assert_type(await gather(chain(add.s(1), joined.s()), place.s(2), add.s(3)), tuple[str, Order, int])
    assert_type(await gather([place.s(1)], when="settled"), list[SettledTask[Order]])
    assert_type(sync.gather([add.s(1)]), list[int])
    assert_type(sync.gather(add.s(1), place.s(2)), tuple[int, Order])
    assert_type(await step("s", charged, 1), Order)
    assert_type(flow.add(joined.s()), Node[str])
    assert_type(await (await group([add.s(1)]).then(joined.s()).submit()).result(), str)
    assert_type(group([add.s(1)]).then(joined).submit_sync().result(), str)
    assert_type(await (await chain(add.s(1), place.s()).submit()).result(), Order)
    (await (await chain(add.s(1), place.s()).submit()).result()).nmber  # E
    (await (await group([add.s(1)]).then(place.s()).submit()).result()).nmber  # E
    group([add.s(1)]).then(joined.s(), when="sometimes")  # E
    flow.add(joined.s(), aftr=[node])  # E
    (await step("s", charged, 1)).nmber  # E
    (await gather([place.s(1)]))[0].nmber  # E
    await gather([add], name="a")  # E
    await gather([add.s(1)], if_cancelled="maybe")  # E
    await current_task().spawn(add.s(1))  # E
    await current_task().spawn(add, key=1)  # E
    spawned(1)  # E


# ---- schedules and durable functions ----


@task(schedule="0 3 * * *")
def nightly(full: bool = False) -> int:
    return int(full)


@task(durable=True)
async def checkout(order: int) -> Order:
    assert_type(await step("charge", charged, order), Order)
    await tasklib.sleep(timedelta(hours=1))
    answer = await tasklib.wait_for_approval("refund", form=Order)
    assert_type(answer, Approval[Order])
    await tasklib.sleep("an hour")  # E
    await tasklib.wait_for_signal("paid", timeout="1")  # E
    await tasklib.wait_for_approval("refund", role="boss")  # E
    return Order(number=order)


def booked(connection: Any, number: int, note: str = "") -> Order:
    return Order(number=number)


def labelled(number: int, label: str = "") -> str:
    return f"{label} {number}"


async def steps() -> None:
    assert_type(await step("label", labelled, 1, label="a"), str)
    assert_type(await step("label", labelled, 1, retries=3), str)
    assert_type(await step("label", labelled, 1, "a", key=1), str)
    assert_type(await step("charge", charged, 1, retries=3), Order)
    assert_type(await step("add", add, 1), int)
    assert_type(await step("book", booked, 1, transactional=True), Order)
    assert_type(await step("book", booked, 1, "a", transactional=True, retries=2), Order)
    assert_type(sync.step("label", labelled, 1), str)
    assert_type(sync.step("label", labelled, 1, retries=3), str)
    assert_type(sync.step("book", booked, 1, transactional=True), Order)
    await step("charge", charged)  # E
    await step("charge", charged, "one")  # E
    await step("charge", charged, 1, 2)  # E
    await step("charge", charged, numbr=1)  # E
    await step("charge", charged, "one", retries=3)  # E
    await step("charge", charged, retries=3)  # E
    await step("charge", charged, 1, retires=3)  # E
    await step("charge", charged, 1, retries="3")  # E
    await step("book", booked, "one", transactional=True)  # E
    await step("book", booked, transactional=True)  # E
    await step(charged, 1)  # E
    sync.step("label", labelled, "one")  # E
    sync.step("label", labelled, "one", key=1)  # E
    sync.step("book", booked, "one", transactional=True)  # E


async def schedules() -> None:
    hourly = Schedule(every=timedelta(hours=1), args={"full": False})
    assert_type((await tasklib.create_schedule(nightly, hourly, name="hourly")).name, str)
    assert_type(await checkout.submit(order=1), TaskId[Order])
    Schedule(evry=timedelta(hours=1))  # E
    await tasklib.create_schedule(nightly, 3)  # E
    await tasklib.create_schedule(nightly, hourly, nme="hourly")  # E
    task(schedule=3)  # E
    tasklib.get_schedule("hourly").name  # E


# ---- limits, breakers, batches and shards ----

STRIPE = Limit("stripe", max_running=5)


@task(limits=[STRIPE, Limit(rate=1, per=60)], serial_key="card", share="card", breaker=Breaker(failures=0.5))
def pay(card: str) -> str:
    return card


@task(queue=queue("ledger", serial=True), batch=Batch(max=10))
async def book(entries: list[int]) -> list[str]:
    return [str(entry) for entry in entries]


@task(limits=5)  # E
def limited_by_a_number(n: int) -> None: ...


@task(breaker="open")  # E
def broken(n: int) -> None: ...


@task(batch=100)  # E
async def gathered(numbers: list[int]) -> None: ...


async def limits(client: Client) -> None:
    assert_type(await pay.options(share="acme", serial_key="ann").submit("visa"), TaskId[str])
    assert_type(await pay.submit(card="visa"), TaskId[str])
    async with limit(STRIPE, key="ann", timeout=5):
        assert_type(client.set_limit("stripe", max_running=2), bool)
    with limit("stripe", cost=3):
        assert_type(client.set_breaker("pay", failures=0.5, pause=120), bool)
    Limit("stripe", max_runing=5)  # E
    Limit("stripe", max_running="5")  # E
    limit(5)  # E
    limit("stripe", timeout="5")  # E
    queue("ledger", serial="sometimes")  # E
    Breaker(failure=0.5)  # E
    Batch(most=10)  # E
    client.set_limit("stripe", max_runing=2)  # E
    client.open_breaker("pay", "10m")  # E
    pay.options(share=["acme"])  # E
    raise Throttled(retry_after="30")  # E


def shards() -> None:
    spread = Config(shards=(Shard(0, "postgresql://a"), Shard(1, "postgresql://b", weight=2.0)))
    assert_type(spread.home, Shard)
    assert_type(spread.for_shard(1), Config)
    Config(shards="postgresql://a")  # E
    Config("postgresql://", max_retires=1)  # E
    Shard("0", "postgresql://a")  # E
    Shard(0, "postgresql://a", wieght=2)  # E
    spread.for_shard("one")  # E

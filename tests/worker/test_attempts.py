"""What a worker makes of a task function: results, errors, retries, timeouts, context."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import time
from contextvars import ContextVar
from decimal import Decimal
from uuid import UUID, uuid4

import psycopg
import pytest
from pydantic import BaseModel

from tasklib import AsyncClient, Config, Retry, Worker, current_task, task
from tasklib.backends.backend import Found
from tasklib.backends.postgres.claims import PostgresClaims
from tasklib.events import SlotStuck, TaskEnded, TaskStarted
from tests.eventually import soon
from tests.worker.watching import Watched, burst, working


class Order(BaseModel):
    number: int
    placed: dt.datetime


@pytest.fixture
async def client(config: Config) -> AsyncClient:
    return AsyncClient(config)


async def test_async_function_runs_and_its_result_is_stored(config: Config, client: AsyncClient) -> None:
    @task
    async def add(a: int, b: int = 2) -> int:
        return a + b

    task_id = await client.submit_task(add, a=40)
    await burst(config)
    done = await client.get_task(task_id)
    assert done is not None
    assert (done.state, done.result, done.error) == ("completed", 42, None)
    assert done.worker_id is not None
    assert done.locked_until is None
    assert done.completed_at is not None
    assert done.lease_token == 1
    assert await client.wait_for(task_id) == 42


async def test_sync_function_runs_in_a_thread(config: Config, client: AsyncClient) -> None:
    @task
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    task_id = await client.submit_task(where)
    await burst(config)
    assert await client.wait_for(task_id) is False


async def test_function_receives_typed_arguments(config: Config, client: AsyncClient) -> None:
    seen: dict[str, object] = {}

    @task
    async def look(
        order: Order,
        at: dt.datetime,
        key: UUID,
        price: Decimal,
        raw: bytes,
        words: set[str],
        day: dt.date = dt.date.max,
    ) -> None:
        seen.update(order=order, at=at, key=key, price=price, raw=raw, words=words, day=day)

    at = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)
    given = {
        "order": Order(number=7, placed=at),
        "at": at,
        "key": uuid4(),
        "price": Decimal("12.30"),
        "raw": b"\x00\xff",
        "words": {"a", "b"},
    }
    await client.submit_task(look, **given)
    await burst(config)
    assert seen == {**given, "day": dt.date.max}


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        ({"a": [1, 2.5, "x"]}, {"a": [1, 2.5, "x"]}),
        (
            Order(number=1, placed=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
            {"number": 1, "placed": "2026-01-01T00:00:00Z"},
        ),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        ((1, 2), [1, 2]),
        ("it's \\u0000 in letters", "it's \\u0000 in letters"),
    ],
)
async def test_any_value_pydantic_can_serialise_is_a_result(
    config: Config, client: AsyncClient, value: object, stored: object
) -> None:
    @task
    async def give() -> object:
        return value

    task_id = await client.submit_task(give)
    await burst(config)
    assert await client.wait_for(task_id) == stored


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), "has a type that can't be stored as JSON"),
        (float("nan"), "is nan, which JSON doesn't have"),
        ("a\x00b", "contains the character"),
        ("\ud800", "lone surrogate"),
        ("x" * 2_000_000, "max_payload_bytes"),
    ],
)
async def test_result_that_cannot_be_stored_fails_the_attempt_with_a_clear_error(
    config: Config, client: AsyncClient, value: object, reason: str
) -> None:
    @task(max_retries=0)
    async def give() -> object:
        return value

    task_id = await client.submit_task(give)
    neighbour = await client.submit_task(give, queue="other")
    await burst(config)
    for id_ in (task_id, neighbour):
        row = await client.get_task(id_)
        assert row is not None
        assert row.state == "dead_letter"
        assert "ResultNotStorable" in str(row.error)
        assert reason in str(row.error)


async def test_result_only_postgres_refuses_fails_alone_and_its_neighbours_complete(
    config: Config, client: AsyncClient, db: psycopg.Connection
) -> None:
    @task(max_retries=0)
    async def give(value: str) -> str:
        return value

    db.execute("ALTER TABLE tasks ADD CONSTRAINT no_secrets CHECK (result->>'value' <> 'secret')")
    good = [await client.submit_task(give, value="fine") for _ in range(3)]
    bad = await client.submit_task(give, value="secret")
    await burst(config)
    assert [await client.wait_for(i) for i in good] == ["fine"] * 3
    row = await client.get_task(bad)
    assert row is not None
    assert row.state == "dead_letter"
    assert "PostgreSQL refused the return value" in str(row.error)


async def test_sys_exit_in_a_task_fails_the_attempt_only(config: Config, client: AsyncClient) -> None:
    @task(max_retries=0)
    async def leave_async() -> None:
        raise SystemExit(3)

    @task(max_retries=0)
    def leave() -> None:
        raise SystemExit(3)

    @task
    async def stay() -> str:
        return "here"

    await client.submit_many([leave_async.bind(), leave.bind()])
    stays = await client.submit_task(stay)
    await burst(config)
    assert await client.wait_for(stays) == "here"
    assert len(await client.list_tasks(state="dead_letter")) == 2


async def test_cancelled_error_raised_by_the_task_itself_fails_the_attempt(config: Config, client: AsyncClient) -> None:
    @task(max_retries=0)
    async def confused() -> None:
        raise asyncio.CancelledError

    task_id = await client.submit_task(confused)
    await burst(config)
    row = await client.get_task(task_id)
    assert row is not None
    assert row.state == "dead_letter"


async def test_async_task_past_its_timeout_is_cancelled_and_gets_more_time(config: Config, client: AsyncClient) -> None:
    cleaned = asyncio.Event()

    @task(timeout_seconds=1)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    task_id = await client.submit_task(slow)
    await burst(config)
    row = await client.get_task(task_id)
    assert cleaned.is_set()
    assert row is not None
    assert (row.state, row.retry_count, row.timeout_seconds) == ("failed", 1, 2)
    assert "longer than its timeout of 1 s" in str(row.error)
    assert (row.history or [])[0]["outcome"] == "timeout"


async def test_task_inserted_by_hand_has_the_timeout_of_its_function(
    config: Config, client: AsyncClient, db: psycopg.Connection
) -> None:
    @task(timeout_seconds=1)
    async def slow() -> None:
        await asyncio.Event().wait()

    db.execute("INSERT INTO tasks (name, max_retries) VALUES ('slow', 0)")
    await burst(config)
    [row] = await client.list_tasks()
    assert row.state == "dead_letter"
    assert "longer than its timeout of 1 s" in str(row.error)


async def test_thread_past_its_timeout_fails_at_its_deadline_and_keeps_its_slot(
    config: Config, client: AsyncClient
) -> None:
    release, asked = threading.Event(), threading.Event()

    @task(timeout_seconds=1, max_retries=0)
    def stuck() -> str:
        release.wait(120)
        if current_task().cancelled:
            asked.set()
        return "too late"

    @task
    async def quick() -> None: ...

    task_id = await client.submit_task(stuck)
    async with working(config, concurrency=1) as watched:
        await watched.until(SlotStuck)
        await watched.ended(task_id, "dead_letter")
        other = await client.submit_task(quick)
        assert not [e for e in watched.all(TaskStarted) if e.id == str(other)], "the slot is still taken"
        release.set()
        await watched.ended(other, "completed")
    assert asked.is_set()
    row = await client.get_task(task_id)
    assert row is not None
    assert row.state == "dead_letter", "what the thread returned came too late"


async def test_attempts_that_were_lost_count_in_both_numbers_of_the_context(
    config: Config, client: AsyncClient, db: psycopg.Connection
) -> None:
    seen: list[tuple[int, int, int]] = []

    @task(max_retries=2)
    async def fail() -> None:
        me = current_task()
        seen.append((me.attempt, me.max_attempts, me.priority))
        raise Retry(in_=0)

    await client.submit_task(fail, priority=7)
    db.execute("UPDATE tasks SET crash_count = 1")
    while len(seen) < 3:
        await burst(config)
    assert seen == [(2, 4, 7), (3, 4, 7), (4, 4, 7)], "the last attempt is the last of its number"


async def test_context_tells_a_task_about_itself(config: Config, client: AsyncClient) -> None:
    seen: dict[str, object] = {}

    @task(timeout_seconds=60, max_retries=4)
    async def look() -> None:
        me = current_task()
        seen.update(
            id=me.id,
            name=me.name,
            attempt=me.attempt,
            attempts=me.max_attempts,
            token=me.token,
            queue=me.queue,
            trace=me.trace_context,
            cancelled=me.cancelled,
        )
        assert me.deadline is not None
        assert 0 < me.deadline - time.monotonic() <= 60

    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    task_id = await client.submit_task(look, queue="special", trace_context=trace)
    await burst(config)
    assert await client.wait_for(task_id) is None
    assert seen == {
        "id": task_id,
        "name": "look",
        "attempt": 1,
        "attempts": 5,
        "token": 1,
        "queue": "special",
        "trace": trace,
        "cancelled": False,
    }


def test_there_is_no_current_task_outside_of_one() -> None:
    with pytest.raises(RuntimeError, match="outside of a running task"):
        current_task()


async def test_progress_is_seen_while_the_task_runs(
    config: Config, client: AsyncClient, db: psycopg.Connection
) -> None:
    go_on = asyncio.Event()

    @task
    async def long() -> None:
        for done in (0.1, 0.2, 0.5):
            current_task().progress({"done": done})
        await go_on.wait()

    task_id = await client.submit_task(long)
    async with working(config) as watched:
        await watched.until(TaskStarted)
        await soon(
            lambda: db.execute("SELECT 1 FROM tasks WHERE progress IS NOT NULL").fetchone(), "progress is written"
        )
        row = await client.get_task(task_id)
        assert row is not None
        assert row.progress == {"done": 0.5}
        go_on.set()
        await watched.ended(task_id, "completed")


async def test_row_whose_arguments_do_not_fit_is_retried_then_given_up(
    config: Config, client: AsyncClient, db: psycopg.Connection
) -> None:
    @task(max_retries=0)
    async def add(a: int) -> int:
        return a

    bad = await client.submit_task(add, a=1)
    good = await client.submit_task(add, a=2)
    db.execute('UPDATE tasks SET kwargs = \'{"a": "many", "z": 1}\' WHERE id = %s', (bad,))
    await burst(config)
    row = await client.get_task(bad)
    assert row is not None
    assert row.state == "dead_letter"
    assert "the arguments don't fit add: a: Input should be a valid integer" in str(row.error)
    assert await client.wait_for(good) == 2


async def test_variables_that_one_task_sets_are_not_seen_by_the_next(config: Config) -> None:
    seen: list[str] = []
    mine: ContextVar[str] = ContextVar("mine", default="nobody's")

    @task(name="attempts.variables")
    async def variables(n: int) -> None:
        seen.append(mine.get())
        mine.set(f"task {n}'s")

    async with AsyncClient(config) as client:
        await client.submit_many(variables, [{"n": n} for n in range(200)])
    await burst(config, concurrency=2)
    assert set(seen) == {"nobody's"}


async def test_burst_goes_on_with_a_task_that_is_due_again_while_it_asks_for_more(
    config: Config, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    @task(max_retries=1)
    async def again() -> str:
        if current_task().attempt == 1:
            await asked.wait()
            raise Retry(in_=0)
        return "twice"

    claim = PostgresClaims.claim

    async def claim_slowly(self: PostgresClaims, limit: int) -> Found:
        found = await claim(self, limit)
        slots = watched.worker._slots
        if not found.tasks and slots.taken:
            asked.set()
            while slots.taken:
                await slots.changed()
        return found

    monkeypatch.setattr(PostgresClaims, "claim", claim_slowly)
    task_id = await client.submit_task(again)
    watched = Watched(Worker(config, burst=True, concurrency=2))
    await watched.worker.run()
    assert [e.state for e in watched.all(TaskEnded) if e.id == str(task_id)] == ["failed", "completed"]

"""`with limit(...)` in the code of tasks: exact over the fleet, given back when the block ends, or its attempt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tasklib
from tasklib import AsyncClient, Config, Limit, LimitNotFound, LimitTimeout, Throttled, current_task, limit, task
from tasklib.errors import InvalidOption
from tasklib.store import limits
from tasklib.store.limits import PlaceAnswer, PlaceRequest
from tasklib.store.settle import Lease
from tasklib.tasks import registry
from tasklib.testing import inline
from tests.eventually import soon
from tests.store.test_limited_claim import set_limit
from tests.worker import process_tasks
from tests.worker.test_limits import Watch
from tests.worker.watching import burst, working


async def test_blocks_of_two_workers_share_the_places(config: Config, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=3)
    watch = Watch()

    @task
    async def charge(n: int) -> None:
        async with limit("stripe"):
            await watch.run("stripe", n)

    async with AsyncClient(config) as client:
        await client.submit_many(charge, [{"n": n} for n in range(40)])
        await asyncio.gather(burst(config, concurrency=10), burst(config, concurrency=10))
        assert sorted(watch.ended) == list(range(40))
        assert watch.most["stripe"] <= 3
        assert await _places(config) == []


async def test_each_key_has_places_of_its_own_and_one_key_may_have_its_own_limit(
    config: Config, db: psycopg.Connection
) -> None:
    set_limit(db, "stripe", max_running=1)
    set_limit(db, "stripe:b", max_running=2)
    watch = Watch()

    @task
    async def charge(account: str, n: int) -> None:
        async with limit("stripe", key=account):
            await watch.run(account, n)

    async with AsyncClient(config) as client:
        await client.submit_many(charge, [{"account": "ab"[n % 2], "n": n} for n in range(20)])
        await burst(config, concurrency=20)
        assert len(watch.ended) == 20
        assert watch.most["a"] == 1
        assert watch.most["b"] <= 2


async def test_blocks_and_tasks_behind_the_same_limit_count_together(config: Config) -> None:
    watch = Watch()

    @task(limits=[Limit("stripe", max_running=2)])
    async def whole(n: int) -> None:
        await watch.run("stripe", n)

    @task
    async def partly(n: int) -> None:
        async with limit("stripe"):
            await watch.run("stripe", n)

    async with AsyncClient(config) as client:
        await client.submit_many(whole, [{"n": n} for n in range(20)])
        await client.submit_many(partly, [{"n": n} for n in range(20, 40)])
        await asyncio.gather(burst(config, concurrency=6), burst(config, concurrency=6))
        assert sorted(watch.ended) == list(range(40))
        assert watch.most["stripe"] <= 2


async def test_a_task_behind_a_limit_begins_when_a_block_gives_its_place_back(
    config: Config, db: psycopg.Connection
) -> None:
    left = asyncio.Event()

    @task(limits=[Limit("stripe", max_running=1)])
    async def whole() -> None:
        assert left.is_set()

    @task
    async def partly() -> None:
        async with limit("stripe"):
            await client.submit_task(whole)
            left.set()
        await asyncio.Event().wait()

    # Without polls: the place is given back with a notification.
    slow = config.with_changes(poll_interval_seconds=1000.0)
    async with AsyncClient(config) as client:
        await client.sync_limits()
        async with working(slow, concurrency=5) as worker:
            await client.submit_task(partly)
            await worker.until(tasklib.events.TaskEnded, lambda e: e.name == "whole")


async def test_sync_functions_use_a_plain_with(config: Config, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=1)
    inside: list[int] = []
    most: list[int] = []

    @task
    def charge(n: int) -> None:
        with limit("stripe"):
            inside.append(n)
            most.append(len(inside))
            inside.remove(n)

    async with AsyncClient(config) as client:
        await client.submit_many(charge, [{"n": n} for n in range(10)])
        await burst(config, concurrency=4)
    assert most == [1] * 10


async def test_a_rate_is_used_and_cost_counts(config: Config, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", rate=1, per=3600, burst=4)
    tried: list[str] = []

    @task
    async def charge() -> None:
        for cost in (3, 1, 1):
            try:
                async with limit("stripe", cost=cost, timeout=0):
                    tried.append(f"{cost} taken")
            except LimitTimeout as e:
                tried.append(str(e))

    async with AsyncClient(config) as client:
        await client.submit_task(charge)
        await burst(config)
    assert tried == ["3 taken", "1 taken", "the limit 'stripe' had no room within 0 s."]


async def test_a_limit_that_is_given_with_its_bounds_is_stored_when_it_is_first_used(config: Config) -> None:
    mailgun = Limit("mailgun", max_running=2)

    @task
    async def send() -> None:
        async with limit(mailgun, key="eu"):
            pass

    async with AsyncClient(config) as client:
        await client.submit_task(send)
        await burst(config)
        (info,) = await client.limits()
        assert (info.name, info.max_running, info.source, info.declared) == ("mailgun", 2, "code", {"max_running": 2})
        await client.set_limit("mailgun", max_running=0)  # what an operator says counts
        await client.submit_task(send)
        async with working(config) as worker:
            attempt = await worker.until(tasklib.events.TaskStarted)
            assert attempt.name == "send"
            await client.set_limit("mailgun", max_running=1)
            await worker.until(tasklib.events.TaskEnded)


async def test_an_unknown_limit_is_an_error_that_names_near_ones(config: Config, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=1)
    found: list[str] = []

    @task
    async def charge() -> None:
        with pytest.raises(LimitNotFound) as caught:
            async with limit("stirpe"):
                raise AssertionError("entered")
        found.append(str(caught.value))

    async with AsyncClient(config) as client:
        await client.submit_task(charge)
        await burst(config)
    assert found == [
        "there is no limit 'stirpe'. Did you mean 'stripe'? Set it: tasklib limit set stirpe --max-running N. "
        "Or give what it allows: limit(Limit('stirpe', max_running=N))."
    ]


async def test_a_block_that_would_wait_for_its_own_task_is_an_error(config: Config) -> None:
    found: list[str] = []

    @task(limits=[Limit("outer", max_running=1)])
    async def charge() -> None:
        for name in ("outer", "inner"):
            with pytest.raises(InvalidOption) as caught:
                async with limit(Limit(name, max_running=1)), limit(name):
                    raise AssertionError("entered")
            found.append(str(caught.value).partition(",")[0])

    async with AsyncClient(config) as client:
        await client.submit_task(charge)
        await burst(config)
    assert found == [f"charge itself holds all places of the limit {name!r}" for name in ("outer", "inner")]


async def test_branches_of_one_task_wait_for_each_other(config: Config, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=2)
    watch = Watch()
    both = asyncio.Barrier(2)

    @task
    async def charge() -> None:
        async def one(n: int) -> None:
            async with limit("stripe"):
                await both.wait()
                await watch.run("stripe", n)

        await asyncio.gather(*(one(n) for n in range(8)))

    async with AsyncClient(config) as client:
        await client.submit_task(charge)
        await burst(config)
    assert sorted(watch.ended) == list(range(8))
    assert watch.most == {"stripe": 2}


async def test_a_timeout_and_a_cancelled_block_hold_nothing(config: Config, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=1)
    seen: list[str] = []

    @task
    async def charge() -> None:
        async def waiting() -> None:
            async with limit("stripe", key="a"):
                seen.append("entered")

        async with limit("stripe", key="a"):
            branch = asyncio.create_task(waiting())
            await asyncio.sleep(0)
            with pytest.raises(LimitTimeout):
                async with limit("stripe", key="a", timeout=0):
                    raise AssertionError("entered")
            branch.cancel()
            await asyncio.gather(branch, return_exceptions=True)
        async with limit("stripe", key="a"):
            seen.append("free again")

    @task
    async def impatient() -> None:
        with pytest.raises(LimitTimeout):
            async with limit("closed", timeout=0.01):
                raise AssertionError("entered")
        seen.append("gave up")

    set_limit(db, "closed", max_running=0)
    async with AsyncClient(config) as client:
        for function in (charge, impatient):
            await client.submit_task(function)
            await burst(config)
    assert seen == ["free again", "gave up"]
    assert await _places(config) == []


async def test_a_place_is_free_when_the_worker_of_its_block_is_lost(config: Config, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=1)
    entered: list[int] = []

    @task
    async def charge() -> None:
        async with limit("stripe"):
            entered.append(current_task().attempt)
            if len(entered) == 1:
                # As after the death of the worker: the leader takes the task back, and another attempt begins.
                taken_back = "state = 'pending', worker_id = NULL, locked_until = NULL"
                db.execute(f"UPDATE tasks SET {taken_back} WHERE state = 'running'")
                await asyncio.Event().wait()

    async with AsyncClient(config) as client, working(config) as worker:
        await client.submit_task(charge)
        await worker.until(tasklib.events.TaskStarted)
        await soon(lambda: len(entered) == 2)
    assert entered == [1, 1]


async def test_a_throttled_limit_keeps_blocks_out(config: Config, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=5)
    seen: list[str] = []

    @task
    async def charge() -> None:
        if not seen:
            seen.append("throttled")
            raise Throttled(retry_after=3600, limit="stripe")

    @task
    async def other() -> None:
        with pytest.raises(LimitTimeout):
            async with limit("stripe", timeout=0):
                raise AssertionError("entered")
        seen.append("kept out")

    async with AsyncClient(config) as client:
        for function in (charge, other):
            await client.submit_task(function)
            await burst(config)
    assert seen == ["throttled", "kept out"]


async def test_a_block_that_asks_again_after_a_lost_answer_takes_one_place(
    config: Config, db: psycopg.Connection
) -> None:
    set_limit(db, "stripe", max_running=1)
    db.execute("INSERT INTO tasks (name) VALUES ('charge')")
    db.execute(
        "UPDATE tasks SET state = 'running', lease_token = 4, worker_id = 'w', started_at = now(), "
        "locked_until = now() + interval '1 hour'"
    )
    row = db.execute("SELECT id::text FROM tasks").fetchone()
    assert row is not None

    lease = Lease(row[0], 4)
    asked = PlaceRequest("stripe", "", 1, block=1, nested=0)
    async with AsyncClient(config) as client:
        for _ in range(2):
            assert await client.database.run(limits.take_place(lease, "w", asked)) == PlaceAnswer("taken", None)
        second = PlaceRequest("stripe", "", 1, block=2, nested=0)
        assert await client.database.run(limits.take_place(lease, "w", second)) == PlaceAnswer("full", None)
        assert await client.database.run(limits.take_place(lease, "another", second)) is None
        await client.database.run(limits.leave_place(lease, "another", 1))
        assert await client.database.run(limits.take_place(lease, "w", second)) == PlaceAnswer("full", None)
        await client.database.run(limits.leave_place(lease, "w", 1))
        assert await client.database.run(limits.take_place(lease, "w", second)) == PlaceAnswer("taken", None)
        db.execute("UPDATE tasks SET lease_token = 5")  # the next attempt: what the last one held is free
        next_one = Lease(row[0], 5)
        assert await client.database.run(limits.take_place(next_one, "w", asked)) == PlaceAnswer("taken", None)
        assert await client.database.run(limits.take_place(lease, "w", second)) is None


async def test_the_block_of_a_function_without_a_worker_is_refused() -> None:
    with pytest.raises(RuntimeError, match="outside of a running task"):
        async with limit("stripe"):
            raise AssertionError("entered")


@pytest.mark.parametrize("which", ["", "queue:mail", "share", 5, None, Limit(max_running=1)])
def test_only_a_limit_with_a_name_of_its_own_can_be_entered(which: Any) -> None:
    with pytest.raises(InvalidOption, match="limit"):
        limit(which)


@pytest.mark.parametrize("options", [{"timeout": -1}, {"timeout": "1"}, {"cost": 0}, {"cost": "x"}])
def test_odd_options_of_a_block_are_refused(options: Any) -> None:
    with pytest.raises(InvalidOption, match="must be"):
        limit("stripe", **options)


def test_inline_there_is_always_room() -> None:
    seen: list[str] = []

    @task
    def charge(account: str) -> None:
        with limit("stripe", key=account):
            seen.append(account)

    @task
    async def charge_async(account: str) -> None:
        async with limit("stripe", key=account):
            seen.append(account)

    with inline():
        charge.submit_sync("a")
        charge_async.submit_sync("b")
    assert seen == ["a", "b"]


async def test_a_block_in_a_child_process_holds_its_place_over_the_fleet(
    config: Config, db: psycopg.Connection, tmp_path: Path
) -> None:
    set_limit(db, "stripe", max_running=1)
    set_limit(db, "closed", max_running=0)
    registry.register(process_tasks.hold_a_place)

    @task
    async def beside() -> str:
        with pytest.raises(LimitTimeout):
            async with limit("stripe", timeout=0):
                raise AssertionError("entered")
        return "kept out"

    async with AsyncClient(config) as client, working(config) as worker:
        held = await client.submit_task(process_tasks.hold_a_place, directory=str(tmp_path))
        await soon((tmp_path / "entered").exists)
        assert await _places(config) == ["stripe"]
        await worker.ended(await client.submit_task(beside), "completed")
        (tmp_path / "left").touch()
        await worker.ended(held, "completed")
        found = await client.get_task(held)
        assert found is not None
        assert found.result == [
            "InvalidOption: child.hold_a_place itself holds all places of the limit 'stripe', so this block would wait "
            "for ever. Leave the outer one first, or omit the limit from @task(limits=...).",
            "again",
            "stirpe: there is no limit 'stirpe'. Did you mean 'stripe'? Se",
            "closed eu: the limit 'closed' for 'eu' had no room within 0.01 s.",
        ]
        assert await _places(config) == []


async def test_a_block_that_is_cancelled_in_a_child_process_holds_nothing(
    config: Config, db: psycopg.Connection
) -> None:
    set_limit(db, "stripe", max_running=1)
    registry.register(process_tasks.give_up_a_place)
    async with AsyncClient(config) as client, working(config) as worker:
        task_id = await client.submit_task(process_tasks.give_up_a_place)
        await worker.ended(task_id, "completed")
        found = await client.get_task(task_id)
        assert found is not None
        assert found.result == ["free again"]
        assert await _places(config) == []


async def test_the_place_of_a_child_process_that_dies_is_free(
    config: Config, db: psycopg.Connection, tmp_path: Path
) -> None:
    set_limit(db, "stripe", max_running=1)
    registry.register(process_tasks.die_with_a_place)
    async with AsyncClient(config) as client, working(config) as worker:
        task_id = await client.submit_task(process_tasks.die_with_a_place, directory=str(tmp_path))
        await worker.ended(task_id, "completed")
        assert await _places(config) == []


async def _places(config: Config) -> list[Any]:
    async with AsyncClient(config) as client:
        return [info.name for info in await client.limits() if info.running]

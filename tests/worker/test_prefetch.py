"""Claiming ahead of free slots: only what is short, never more than allowed, and given back if it has to wait."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace

import psycopg
import pytest

from tasklib import AsyncClient, Config, task
from tasklib.backends.postgres.claims import ClaimCursor
from tasklib.events import TasksClaimed, TaskStarted
from tasklib.store.claim import Claimed
from tasklib.worker.attempt import Attempt
from tasklib.worker.slots import Prefetch
from tests.eventually import PATIENCE, soon
from tests.worker.watching import burst, working


def _claimed(name: str, number: int) -> Claimed:
    due = "2026-01-01 00:00:00+00"
    return Claimed(f"{number:032x}", name, "{}", 1, 0, 3, None, 0, 0, "default", "{}", None, due, 0)


def _short(prefetch: Prefetch, name: str) -> None:
    for _ in range(50):
        prefetch.ended(name, 0.0001)


def test_nothing_is_claimed_ahead_before_there_is_evidence() -> None:
    prefetch = Prefetch(most=1000)
    assert not prefetch.are_short(["a"])
    assert prefetch.count == 0
    prefetch.ended("a", 0.0001)
    assert not prefetch.are_short(["a"]), "one short task may be chance"


def test_functions_are_short_or_not_each_by_itself() -> None:
    prefetch = Prefetch(most=1000)
    _short(prefetch, "a")
    prefetch.ended("b", 2.0)
    assert prefetch.are_short(["a"])
    assert not prefetch.are_short(["a", "b"])
    prefetch.ended("a", 1.0)
    assert not prefetch.are_short(["a"]), "one long task is enough"


def test_as_many_are_allowed_as_end_in_a_moment_and_never_more_than_configured() -> None:
    prefetch = Prefetch(most=30)
    prefetch._since -= 10.0
    for _ in range(2_000):
        prefetch.ended("a", 0.0001)
    assert 9 <= prefetch.count <= 10, "200 a second, for 50 ms"
    prefetch._since -= 10.0
    for _ in range(1_000_000):
        prefetch.ended("a", 0.0001)
    assert prefetch.count == 30
    prefetch.was_too_much()
    assert prefetch.count == 0
    assert not prefetch.are_short(["a"])


def test_a_worker_goes_on_only_behind_full_claims_of_short_tasks_or_many() -> None:
    prefetch = Prefetch(most=1000)
    cursor = ClaimCursor(prefetch.are_short)
    few, many = [_claimed("a", n) for n in range(10)], [_claimed("a", n) for n in range(200)]
    cursor.looked(10, few, 0.001)
    assert not cursor.worth_going_on, "few, and nobody knows that they are short"
    cursor.looked(200, many, 0.001)
    assert cursor.worth_going_on
    assert not cursor.are_short
    assert list(cursor.behind.values()) == [many[-1].place]
    cursor.went_on(200, many[:150])
    assert not cursor.worth_going_on, "the lane was empty"
    _short(prefetch, "a")
    cursor.looked(10, few, 0.001)
    assert cursor.worth_going_on
    assert cursor.are_short


@pytest.mark.parametrize(("look_took", "goes_on_for"), [(0.5, 10.0), (0.0001, 0.1)])
def test_a_worker_looks_from_the_beginning_now_and_then_and_a_twentieth_of_the_time_at_most(
    look_took: float, goes_on_for: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=1000.0)
    monkeypatch.setattr("tasklib.backends.postgres.claims.time", clock)
    cursor = ClaimCursor(Prefetch(most=1000).are_short)
    cursor.looked(200, [_claimed("a", n) for n in range(200)], look_took)
    clock.now += goes_on_for - 0.01
    assert cursor.worth_going_on
    clock.now += 0.02
    assert not cursor.worth_going_on


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_few_slots_claim_many_short_tasks_at_once_and_hold_no_more_than_allowed(
    config: Config, db: psycopg.Connection, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine: these are short, and many of them end in a moment.
    monkeypatch.setattr("tasklib.worker.slots._SHORT_SECONDS", 1000.0)
    monkeypatch.setattr("tasklib.worker.slots._MOMENT_SECONDS", 50.0)
    running = most = 0

    async def host() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    if kind == "async":
        short = task(host, name="short")
    else:

        @task
        def short() -> None: ...

    await AsyncClient(config).submit_many(short, [{}] * 6_000)
    changed = config.with_changes(max_prefetch=200)
    watched = await burst(changed, concurrency=5)
    claims = watched.all(TasksClaimed)
    assert max(c.count for c in claims) > 50
    assert max(c.count for c in claims) <= 205
    assert len(claims) < 6_000 / 5 / 2
    assert most <= 5
    assert db.execute("SELECT DISTINCT state, retry_count FROM tasks").fetchall() == [("completed", 0)]


async def test_claims_are_no_larger_than_the_slots_where_claiming_ahead_is_off(config: Config) -> None:
    @task
    async def short() -> None: ...

    await AsyncClient(config).submit_many(short, [{}] * 500)
    watched = await burst(config.with_changes(max_prefetch=0), concurrency=7)
    assert max(c.count for c in watched.all(TasksClaimed)) == 7


async def test_what_was_claimed_ahead_is_given_back_when_short_tasks_turn_long(
    config: Config, db: psycopg.Connection
) -> None:
    """Other workers may have time for them."""
    turned = asyncio.Event()

    @task
    async def mostly_short(n: int) -> None:
        if n >= 3_000:
            turned.set()
            await asyncio.sleep(1000)

    await AsyncClient(config).submit_many(mostly_short, [{"n": n} for n in range(4_000)])
    changed = config.with_changes(shutdown_grace_seconds=0.0)
    async with working(changed, concurrency=5) as watched:
        async with asyncio.timeout(PATIENCE):
            await turned.wait()
            # One may be claimed and given back once more before it settles.
            await soon(lambda: _held_and_waiting(db) == (5, 995))
        assert watched.worker._slots.running == 5
        assert db.execute("SELECT max(retry_count) FROM tasks").fetchone() == (0,)


def _held_and_waiting(db: psycopg.Connection) -> object:
    return db.execute(
        "SELECT count(*) FILTER (WHERE state = 'running'), count(*) FILTER (WHERE state = 'pending') FROM tasks"
    ).fetchone()


async def test_nothing_is_left_of_an_attempt_when_it_is_over(config: Config) -> None:
    """So the memory of a worker doesn't grow, however many tasks it has run."""

    @task
    async def mixed(n: int) -> int:
        if n % 10 == 0:
            await asyncio.sleep(0.001)
        return n

    @task
    def in_thread(n: int) -> int:
        return n

    client = AsyncClient(config)
    await client.submit_many(mixed, [{"n": n} for n in range(1_000)])
    await client.submit_many(in_thread, [{"n": n} for n in range(1_000)])
    watched = await burst(config, concurrency=20)
    assert len(watched.all(TaskStarted)) >= 2_000
    # A thread that has just ended its last task drops its reference a moment later.
    await soon(lambda: not _attempts_in_memory({"mixed", "in_thread"}), "no attempt is left")


def _attempts_in_memory(names: set[str]) -> list[Attempt]:
    gc.collect()
    return [o for o in gc.get_objects() if type(o) is Attempt and o.claimed.name.rpartition(".")[2] in names]

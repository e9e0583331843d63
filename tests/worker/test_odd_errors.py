"""No exception, however odd, leaves an attempt unsettled, costs a slot, or ends the worker."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeAlias

import psycopg
import pytest
import uvloop

from tasklib import AsyncClient, Client, Config, Worker, task
from tasklib.events import TaskEnded
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction
from tests.worker import odd_errors
from tests.worker.watching import Watched, burst, working

Loop: TypeAlias = Callable[[], asyncio.AbstractEventLoop]
LOOPS = [pytest.param(asyncio.new_event_loop, id="asyncio"), pytest.param(uvloop.new_event_loop, id="uvloop")]


@task(name="odd.innocent")
async def innocent() -> str:
    return "here"


@pytest.mark.parametrize("function", odd_errors.EVERYWHERE, ids=lambda f: f.name)
async def test_whatever_a_task_raises_its_attempt_fails_once_with_the_class_named(
    config: Config, function: TaskFunction[Any, Any]
) -> None:
    registry.register(function)
    registry.register(innocent)
    async with AsyncClient(config) as client:
        ids = dict(zip(odd_errors.KINDS, await client.submit_many(function, _kinds()), strict=True))
        last = await client.submit_task(innocent, priority="low")
        watched = await burst(config, concurrency=2)
        assert await client.wait_for(last, timeout=120) == "here", "the slots are free again"
        rows = {kind: await client.get_task(id_) for kind, id_ in ids.items()}
    for kind, row in rows.items():
        assert row is not None
        said = odd_errors.KINDS[kind]
        assert (row.state, row.crash_count) == ("dead_letter", 0), f"{kind}: {row.error}"
        assert said in (row.error or ""), f"{kind}: {(row.error or '')[-500:]}"
    assert _settlements(watched) == dict.fromkeys(map(str, [*ids.values(), last]), 1)


async def test_worker_stops_as_usual_after_every_odd_exception(config: Config) -> None:
    registry.register(odd_errors.before_it_waits)

    @task
    async def waits() -> None:
        await asyncio.Event().wait()

    async with AsyncClient(config) as client:
        async with working(config, concurrency=50) as watched:
            waiting = await client.submit_task(waits)
            ids = await client.submit_many(odd_errors.before_it_waits, _kinds())
            for id_ in ids:
                await watched.ended(id_, "dead_letter")
        row = await client.get_task(waiting)
    assert row is not None
    assert (row.state, row.retry_count) == ("pending", 0), "what else ran was given back"


async def test_validator_that_raises_anything_fails_the_attempt(config: Config, db: psycopg.Connection) -> None:
    @task(name="odd.arguments")
    async def careful(value: odd_errors.Refused) -> None: ...

    @task(name="odd.thread_arguments")
    def careful_in_a_thread(value: odd_errors.Refused) -> None: ...

    db.execute("""
        INSERT INTO tasks (name, kwargs, max_retries)
        SELECT name, jsonb_build_object('value', value), 0
        FROM unnest('{odd.arguments,odd.thread_arguments}'::text[]) AS name, unnest('{key,exit,odd}'::text[]) AS value
    """)
    await burst(config, concurrency=2)
    async with AsyncClient(config) as client:
        rows = await client.list_tasks()
    assert [(row.state, "validator" in (row.error or "")) for row in rows] == [("dead_letter", True)] * 6


async def test_result_that_raises_when_it_is_written_fails_the_attempt(config: Config) -> None:
    functions = (odd_errors.odd_result, odd_errors.odd_result_in_a_thread)
    async with AsyncClient(config) as client:
        ids = {}
        for function in functions:
            registry.register(function)
            for kind in odd_errors.RESULTS:
                ids[await client.submit_task(function, kind=kind)] = kind
        await burst(config, concurrency=2)
        for id_, kind in ids.items():
            row = await client.get_task(id_)
            assert row is not None
            assert row.state == "dead_letter", kind
            assert odd_errors.RESULTS[kind][1] in (row.error or ""), row.error


async def test_class_that_refuses_to_be_compared_and_policy_that_raises_cost_nothing(config: Config) -> None:
    functions = (odd_errors.unasked, odd_errors.without_policy, odd_errors.with_endless_policy)
    async with AsyncClient(config) as client:
        ids = []
        for function in functions:
            registry.register(function)
            ids.append(await client.submit_task(function))
        watched = await burst(config, concurrency=1)
    assert [(await watched.ended(id_)).state for id_ in ids] == ["dead_letter", "failed", "failed"]
    assert [(await watched.ended(id_)).retry_in_seconds for id_ in ids] == [None, 5.0, 5.0], "the default's delay"


async def test_subscriber_and_log_filter_that_raise_cost_nothing(config: Config) -> None:
    def no_logging(record: logging.LogRecord) -> bool:
        raise ValueError("no logging")

    def no_events(event: object) -> None:
        raise ValueError("no events")

    registry.register(odd_errors.on_the_loop)
    worker = Worker(config, burst=True)
    watched = Watched(worker)
    worker.events.subscribe(no_events)
    logger = logging.getLogger("tasklib")
    logger.addFilter(no_logging)
    try:
        async with AsyncClient(config) as client:
            id_ = await client.submit_task(odd_errors.on_the_loop, kind="getattr raises")
            async with asyncio.timeout(120):
                await worker.run()
    finally:
        logger.removeFilter(no_logging)
    assert (await watched.ended(id_)).state == "dead_letter"


def _run(loop: Loop, work: Coroutine[Any, Any, Any]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("how", ["gather", "group", "context", "wait_for"])
def test_exit_in_an_asyncio_task_of_the_function_fails_its_attempt_and_the_worker_goes_on(
    config: Config, loop: Loop, how: str
) -> None:
    registry.register(odd_errors.in_a_subtask)
    with Client(config) as client:
        many = [{"kind": kind, "how": how, "is_late": late} for kind in odd_errors.EXITS for late in (False, True)]
        ids = client.submit_many(odd_errors.in_a_subtask, many)
        _run(loop, burst(config, concurrency=2))
        for id_, arguments in zip(ids, many, strict=True):
            row = client.get_task(id_)
            assert row is not None
            assert (row.state, row.crash_count) == ("dead_letter", 0)
            assert f"{arguments['kind']}: from below" in (row.error or "").splitlines()[-1]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("is_in_subtask", [False, True])
def test_signal_handler_of_the_program_that_exits_ends_it_in_the_midst_of_a_task(
    config: Config, loop: Loop, is_in_subtask: bool
) -> None:
    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(7)

    async def be_told() -> None:
        signal.raise_signal(signal.SIGUSR1)

    @task(name="odd.told", max_retries=0)
    async def told() -> None:
        await (asyncio.create_task(be_told()) if is_in_subtask else be_told())

    before = signal.signal(signal.SIGUSR1, leave)
    try:
        with Client(config) as client:
            id_ = client.submit_task(told)
            with pytest.raises(SystemExit, match="7"):
                _run(loop, burst(config))
            row = client.get_task(id_)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert row is not None
    assert (row.state, row.retry_count) == ("pending", 0), "the worker gave it back"


async def test_task_factory_of_the_program_is_used_and_stays(config: Config) -> None:
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coroutine.__name__)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def below() -> None: ...

    @task(name="odd.counted")
    async def counted() -> None:
        await asyncio.gather(below())
        cancelled = asyncio.create_task(below())  # before its first step, and without a warning
        cancelled.cancel()
        await asyncio.wait([cancelled])

    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    try:
        async with AsyncClient(config) as client:
            id_ = await client.submit_task(counted)
            watched = await burst(config)
        assert loop.get_task_factory() is factory
    finally:
        loop.set_task_factory(None)
    assert (await watched.ended(id_)).state == "completed"
    assert made.count("below") == 2


def _kinds() -> list[dict[str, str]]:
    return [{"kind": kind} for kind in odd_errors.KINDS]


def _settlements(watched: Watched) -> dict[str, int]:
    ended = [e.id for e in watched.all(TaskEnded)]
    return {id_: ended.count(id_) for id_ in ended}

"""Flows, spawned tasks and gathered tasks in inline mode."""

from __future__ import annotations

from typing import Any

import pytest

import tasklib
from tasklib import (
    Flow,
    Results,
    SettledTask,
    TaskFailed,
    chain,
    current_task,
    gather,
    group,
    sleep,
    spawned,
    sync,
    task,
)
from tasklib.testing import inline


def functions() -> tuple[Any, Any, Any]:
    @task(name="inline.add")
    async def add(x: int, y: int = 1) -> int:
        return x + y

    @task(name="inline.total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @task(name="inline.reject")
    async def reject() -> int:
        raise tasklib.Reject("no")

    return add, total, reject


async def test_inline_a_chain_and_a_group_with_a_join_run_to_their_results() -> None:
    add, total, _ = functions()
    async with inline() as ran:
        chained = await chain(add.s(1), add.s(2), add.s(3)).submit()
        joined = await group(add.s(n) for n in range(3)).then(total.s()).submit()
        assert await chained.result() == 7
        assert await joined.result() == 6
    assert [t.result for t in ran.tasks] == [2, 4, 7, 1, 2, 3, 6]


def test_inline_a_graph_is_submitted_by_synchronous_code() -> None:
    add, total, _ = functions()

    @task(name="inline.paged")
    def paged(numbers: Results[int]) -> int:
        return sum(numbers)

    flow: Flow[int] = Flow("f")
    one = flow.add(add.s(1), name="one")
    many = flow.add([add.s(one, n) for n in range(3)], name="many")
    flow.add(total.s(many), name="total")
    flow.add(paged.s(many), name="paged")
    with inline():
        run = flow.submit_sync()
        assert [run.tasks[name][0].result() for name in ("total", "paged")] == [9, 9]


async def test_inline_a_failure_cancels_what_waits_and_settled_joins_run() -> None:
    add, total, reject = functions()

    @task(name="inline.states")
    async def states(ends: list[SettledTask[int]]) -> list[str]:
        return [end.state for end in ends]

    async with inline(raise_errors=False) as ran:
        await group(add.s(1), reject.s()).with_callbacks(on_success=total.s(), on_end=states.s()).submit()
        await group(add.s(1), reject.s()).then(total.s(), at_least=1).submit()
    assert [t.state for t in ran.tasks] == [
        *("completed", "dead_letter", "cancelled", "completed"),
        *("completed", "dead_letter", "completed"),
    ]
    assert ran.tasks[3].result == ["completed", "dead_letter"]
    with inline(), pytest.raises(tasklib.Reject):
        await chain(reject.s(), add.s()).submit()


@pytest.mark.parametrize("is_sync", [False, True])
async def test_inline_spawned_tasks_run_at_once_and_their_join_gets_them(is_sync: bool) -> None:
    add, total, _ = functions()

    @task(name="inline.fan_out")
    async def fan_out(n: int) -> None:
        await current_task().spawn_many({x: add.s(x) for x in range(n)})
        await current_task().spawn(add.s(0), key=0)

    @task(name="inline.fan_out_sync")
    def fan_out_sync(n: int) -> None:
        current_task().spawn_many_sync({x: add.s(x) for x in range(n)})

    async with inline() as ran:
        run = await chain(spawned((fan_out_sync if is_sync else fan_out).s(3)), total.s()).submit()
        assert await run.result() == 6
    assert len(ran.tasks) == 5


async def test_inline_a_durable_function_gathers_and_skips_time() -> None:
    add, _, reject = functions()

    @task(durable=True)
    async def parent() -> list[object]:
        await sleep(86400)
        one, two = await gather(add.s(1), chain(add.s(2), add.s(3)))
        try:
            await gather([reject.s()], name="failing")
        except TaskFailed as e:
            return [one, two, e.name]
        return []

    @task(durable=True)
    def parent_sync() -> list[int]:
        return sync.gather([add.s(n) for n in range(3)])

    async with inline() as ran:
        assert await (await parent.submit()).result() == [2, 6, "inline.reject"]
        assert await (await parent_sync.submit()).result() == [1, 2, 3]
    assert [t.name for t in ran.tasks if t.state == "dead_letter"] == ["inline.reject"]

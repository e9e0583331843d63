"""Durable functions in tests: inline, and drained with time skipped."""

from __future__ import annotations

import datetime as dt

import pytest
from pydantic import BaseModel

import tasklib
from tasklib import Config, TaskId, continue_as_new, sleep, step, sync, task, wait_for_approval, wait_for_signal
from tasklib.errors import TaskLibError
from tasklib.testing import drain, inline


async def test_inline_a_durable_function_skips_time_and_gets_signals() -> None:
    @task(durable=True, deadline_seconds=1e10)
    async def order() -> object:
        first = await step("first", lambda: 1)
        await sleep(dt.timedelta(days=3))
        await sleep(dt.datetime(2040, 1, 1, tzinfo=dt.UTC), name="until")
        try:
            await wait_for_signal("never", timeout=3600)
        except TimeoutError:
            return [first, await wait_for_signal("paid", timeout=3600), await wait_for_signal("paid", key=2)]

    async with inline(signals={"paid": [5, 6]}) as ran:
        await order.submit()
    assert ran.tasks[0].result == [1, 5, 6]


def test_inline_sync_functions_continue_as_new() -> None:
    @task(durable=True)
    def pages(number: int) -> int:
        sync.step("page", lambda: None)
        if number < 3:
            continue_as_new(number=number + 1)
        return number

    with inline() as ran:
        pages.submit_sync(number=1)
    assert ran.tasks[0].result == 3


async def test_inline_a_function_that_continues_as_new_has_nothing_on_record() -> None:
    answers = iter(["wait", "wait", "ready"])

    @task(durable=True)
    async def follow(asked: int = 1) -> int:
        if await step("ask", lambda: next(answers)) == "wait":
            await sleep(3600)
            continue_as_new(asked=asked + 1)
        return asked

    async with inline() as ran:
        await follow.submit()
    assert ran.tasks[0].result == 3


async def test_inline_a_signal_that_was_not_given_is_an_error() -> None:
    @task(durable=True)
    async def order() -> None:
        await wait_for_signal("paid")

    with inline(), pytest.raises(TaskLibError, match=r"inline\(signals=\{'paid'"):
        await order.submit()


async def test_a_drain_with_delayed_tasks_skips_sleeps_but_waits_for_signals(config: Config) -> None:
    tasklib.init(config)

    @task(durable=True, deadline_seconds=864_000)
    async def order() -> object:
        await sleep(3600)
        try:
            await wait_for_signal("never", timeout=3600)
        except TimeoutError:
            return await wait_for_signal("paid", timeout=7200, key=1)

    @task(durable=True)
    async def waits() -> object:
        return await wait_for_signal("paid")

    task_id: TaskId[object] = await order.submit()
    waiting = await waits.submit()
    assert (await drain()).counts == {"pending": 2}
    await task_id.signal("paid", {"by": "ann"})
    assert (await drain(with_delayed=True)).counts == {"completed": 1}
    assert await task_id.result(timeout=0) == {"by": "ann"}
    assert await waiting.signal("paid", key="k")
    assert await waiting.signal("paid", key="k")
    assert (await drain()).counts == {"completed": 1}
    assert not await waiting.signal("paid")


async def test_inline_approvals_are_given_as_true_false_or_what_is_filled_in() -> None:
    class Payment(BaseModel):
        account: str

    @task(durable=True)
    async def pay() -> object:
        first = await wait_for_approval("first")
        second = await wait_for_approval("second", timeout=60)
        third = await wait_for_approval("third", form=Payment)
        return [bool(first), bool(second), third.form.account]

    async with inline(approvals={"first": [True], "second": [False], "third": [Payment(account="DE02")]}) as ran:
        await pay.submit()
    assert ran.tasks[0].result == [True, False, "DE02"]
    with (
        inline(approvals={"first": [True], "second": [True], "third": [{}]}),
        pytest.raises(TaskLibError, match="waits for the approval 'third#2'"),
    ):
        await pay.submit()

"""Inline mode when a task fails: the error comes out of the call, or is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import tasklib
from tasklib import Reject, Retry, TaskState, task
from tasklib.errors import ResultNotStorable, TaskExecutionError, TaskFailed, TaskNotFound
from tasklib.testing import Inline, inline


@pytest.fixture
def ran() -> Iterator[Inline]:
    with inline() as ran:
        yield ran


@pytest.fixture
def recorded() -> Iterator[Inline]:
    with inline(raise_errors=False) as ran:
        yield ran


class Broken(Exception):
    pass


@pytest.mark.parametrize("error", [Broken("x"), Retry(in_=60), Reject("no"), SystemExit(3), StopIteration("x")])
def test_error_of_a_sync_function_comes_out_of_the_call_as_it_was_raised(ran: Inline, error: BaseException) -> None:
    @task
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        fail.submit_sync()
    assert raised.value is error
    assert ran.tasks[0].error is error
    assert ran.tasks[0].state is TaskState.DEAD_LETTER


@pytest.mark.parametrize("error", [Broken("x"), Retry(in_=60), Reject("no"), SystemExit(3)])
async def test_error_comes_out_of_the_awaited_call_as_it_was_raised(ran: Inline, error: BaseException) -> None:
    @task
    def fail() -> None:
        raise error

    @task
    async def fail_async() -> None:
        raise error

    for function in (fail, fail_async):
        with pytest.raises(type(error)) as raised:
            await function.submit()
        assert raised.value is error
        with pytest.raises(type(error)) as raised:
            function.submit_sync()
        assert raised.value is error


def test_error_of_an_inner_task_comes_out_of_the_outer_one(ran: Inline) -> None:
    @task
    def inner() -> None:
        raise Broken("inside")

    @task
    def outer() -> None:
        inner.submit_sync()

    with pytest.raises(Broken, match="inside"):
        outer.submit_sync()
    assert [t.state for t in ran.tasks] == [TaskState.DEAD_LETTER] * 2


def test_recorded_error_is_found_again_by_wait_for_and_get_task(recorded: Inline) -> None:
    @task(max_retries=5)
    def fail() -> None:
        raise Broken("too bad")

    task_id = fail.submit_sync()
    assert isinstance(recorded.tasks[0].error, Broken)
    with pytest.raises(TaskFailed, match="too bad") as failed:
        tasklib.sync.wait_for(task_id)
    assert failed.value.remote_traceback is not None
    assert "tasklib/testing" not in failed.value.remote_traceback
    row = tasklib.sync.get_task(task_id)
    assert row is not None
    assert (row.state, row.error) == ("dead_letter", failed.value.remote_traceback)


async def test_recorded_errors_don_t_stop_the_tasks_after_them(recorded: Inline) -> None:
    @task
    async def positive(n: int) -> int:
        if n < 0:
            raise Broken(str(n))
        return n

    ids = await tasklib.submit_many(positive, [{"n": 1}, {"n": -2}, {"n": 3}])
    assert len(ids) == 3
    assert [t.state.value for t in recorded.tasks] == ["completed", "dead_letter", "completed"]


def test_raised_error_leaves_the_rest_of_a_batch_unrun(ran: Inline) -> None:
    @task
    def positive(n: int) -> int:
        if n < 0:
            raise Broken(str(n))
        return n

    with pytest.raises(Broken):
        tasklib.sync.submit_many(positive, [{"n": 1}, {"n": -2}, {"n": 3}])
    assert [t.state.value for t in ran.tasks] == ["completed", "dead_letter", "pending"]


def test_result_that_can_t_be_stored_fails(ran: Inline) -> None:
    @task
    def thing() -> object:
        return object()

    with pytest.raises(ResultNotStorable, match=r"the return value \(object\) can't be stored"):
        thing.submit_sync()


async def test_result_that_can_t_be_stored_fails_when_awaited(recorded: Inline) -> None:
    @task
    async def thing() -> object:
        return {"a": float("nan")}

    await thing.submit()
    assert isinstance(recorded.tasks[0].error, ResultNotStorable)
    assert "at a: is nan" in str(recorded.tasks[0].error)


def test_bad_arguments_and_unknown_names_are_refused_like_anywhere(recorded: Inline) -> None:
    @task
    def double(n: int) -> int:
        return 2 * n

    with pytest.raises(TaskExecutionError, match="n: "):
        tasklib.sync.submit_task(double, n="many")
    with pytest.raises(TaskNotFound, match="Did you mean 'double'"):
        tasklib.sync.submit_task("doubel")
    assert recorded.tasks == []


@pytest.mark.parametrize("raise_errors", [True, False])
def test_failing_a_test_inside_a_task_fails_the_test(raise_errors: bool) -> None:
    @task
    def check() -> None:
        pytest.fail("seen from inside")

    with inline(raise_errors=raise_errors), pytest.raises(pytest.fail.Exception, match="seen from inside"):
        check.submit_sync()


async def test_cancelling_the_call_cancels_the_task(recorded: Inline) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    @task
    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    call = asyncio.create_task(wait.submit())
    await began.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ended.is_set()
    assert isinstance(recorded.tasks[0].error, asyncio.CancelledError)

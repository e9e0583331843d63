"""What a program has done around its workers, submissions and attempts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

import tasklib
from tasklib import (
    Config,
    Reject,
    TaskContext,
    Worker,
    around_attempts,
    around_submissions,
    current_task,
    on_event,
    on_shutdown,
    on_startup,
    task,
)
from tasklib.errors import InvalidOption, TaskExecutionError
from tasklib.events import Event, TaskEnded, WorkerStarted, WorkerStopped
from tasklib.tasks import hooks, registry
from tasklib.tasks.hooks import Submitting
from tests.worker.watching import burst


@pytest.fixture(autouse=True)
def _initialised(config: Config) -> Iterator[None]:
    tasklib.init(config)
    yield
    tasklib.close()


async def test_hooks_run_before_the_first_task_and_after_the_last_in_reverse_order(config: Config) -> None:
    said: list[str] = []

    @on_startup
    def first() -> None:
        said.append("first starts")

    @on_startup
    async def second(state: SimpleNamespace) -> AsyncIterator[None]:
        state.greeting = "hello"
        said.append("second starts")
        yield
        said.append("second stops")

    @on_shutdown
    async def last(state: SimpleNamespace) -> None:
        said.append(f"shutdown with {state.greeting}")

    @task
    async def on_the_loop() -> None:
        said.append(f"loop {current_task().state.greeting}")

    @task
    def in_a_thread() -> None:
        said.append(f"thread {current_task().state.greeting}")

    await on_the_loop.submit()
    await burst(config)
    assert said == ["first starts", "second starts", "loop hello", "shutdown with hello", "second stops"]
    said.clear()
    await in_a_thread.submit()
    await burst(config)
    assert "thread hello" in said, "each run of a worker starts anew"


async def test_a_startup_hook_that_raises_ends_the_worker_and_what_had_started(config: Config) -> None:
    said: list[str] = []

    @on_startup
    def opened() -> Iterator[None]:
        said.append("opened")
        yield
        said.append("closed")

    @on_startup
    def broken() -> None:
        raise OSError("no such bucket")

    @on_shutdown
    def never() -> None:
        said.append("shutdown")

    with pytest.raises(OSError, match="no such bucket"):
        await Worker(config, burst=True, signals=False).run()
    assert said == ["opened", "closed"]


async def test_a_shutdown_hook_that_raises_is_reported_and_the_others_run(config: Config) -> None:
    said: list[str] = []
    events: list[Event] = []
    on_event(events.append)
    on_shutdown(lambda: said.append("ran"))

    @on_shutdown
    def broken() -> None:
        raise ValueError("already closed")

    await burst(config)
    assert said == ["ran"]
    assert "already closed" in str([e for e in events if type(e).__name__ == "DutyFailed"])


async def test_children_have_hooks_and_a_state_of_their_own(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKLIB_TEST_HOOKS", str(tmp_path / "said"))
    with hooks.isolated():
        from tests.worker import hooked_tasks

        registry.register(hooked_tasks.in_child)
        ids = [await hooked_tasks.in_child.submit() for _ in range(2)]
        await burst(config, concurrency=1)
        results = [await i.result(timeout=0) for i in ids]
    pid = results[0][1]
    assert results == [[True, pid, "in_child 1"]] * 2
    assert (tmp_path / "said").read_text() == f"closed by {pid}"


async def test_hooks_around_attempts_see_the_exception_wherever_the_function_runs(
    config: Config, db: psycopg.Connection
) -> None:
    seen: list[tuple[str, str]] = []

    @around_attempts
    def report(attempt: TaskContext) -> Iterator[None]:
        try:
            yield
        except Exception as e:
            seen.append((attempt.name, type(e).__name__))
            raise
        seen.append((attempt.name, "fine"))

    @task(max_retries=0)
    async def on_the_loop() -> None:
        raise KeyError("a")

    @task(max_retries=0)
    def in_a_thread() -> None:
        raise Reject("b")

    @task(max_retries=0)
    async def unstorable() -> object:
        return object()

    @task(max_retries=0)
    async def fine() -> int:
        return 1

    for function in (on_the_loop, in_a_thread, unstorable, fine):
        await function.submit()
    db.execute("""INSERT INTO tasks (name, kwargs, max_retries) VALUES ('fine', '{"no": "such argument"}', 0)""")
    await burst(config)
    assert sorted(seen) == [
        ("fine", "TaskExecutionError"),
        ("fine", "fine"),
        ("in_a_thread", "Reject"),
        ("on_the_loop", "KeyError"),
        ("unstorable", "ResultNotStorable"),
    ]


async def test_a_hook_that_swallows_the_exception_does_not_make_a_success_of_the_attempt(config: Config) -> None:
    @around_attempts
    def swallow(attempt: TaskContext) -> Iterator[None]:
        with suppress(ValueError):
            yield

    @task(max_retries=0)
    async def fails() -> None:
        raise ValueError("it did")

    task_id = await fails.submit()
    await burst(config)
    with pytest.raises(tasklib.TaskFailed, match="it did"):
        await task_id.result(timeout=0)


def test_a_hook_around_attempts_cannot_be_async() -> None:
    with pytest.raises(InvalidOption, match="plain generator"):

        @around_attempts
        async def report(attempt: TaskContext) -> AsyncIterator[None]:
            yield


async def test_hooks_around_submissions_see_the_call_and_may_add_a_trace_context(config: Config) -> None:
    seen: list[Submitting] = []

    @around_submissions
    def trace(submitting: Submitting) -> Iterator[None]:
        submitting.trace_context["x-request"] = "r1"
        seen.append(submitting)
        yield

    @task(queue="mail")
    async def send(to: str) -> str | None:
        return (current_task().trace_context or {}).get("x-request")

    one = await send.submit("a")
    own = await send.options(trace_context={"x-request": "mine"}).submit("b")
    await asyncio.to_thread(send.submit_sync, "c")
    await tasklib.submit_many(send, [{"to": "d"}, {"to": "e"}])
    await tasklib.chain(send.s("f")).submit()
    assert [(set(s.names), set(s.queues), s.count) for s in seen] == [({"send"}, {"mail"}, n) for n in (1, 1, 1, 2, 1)]
    assert seen[0].task_id == str(one)
    await burst(config)
    assert [await one.result(timeout=0), await own.result(timeout=0)] == ["r1", "mine"]


async def test_what_a_hook_around_submissions_raises_refuses_the_submission() -> None:
    @around_submissions
    def refuse(submitting: Submitting) -> Iterator[None]:
        raise TaskExecutionError("not on Fridays")
        yield

    @task
    async def deploy() -> None: ...

    with pytest.raises(TaskExecutionError, match="not on Fridays"):
        await deploy.submit()
    assert await tasklib.list_tasks() == []


async def test_subscribers_hear_every_worker_of_the_program_and_routine_events_on_request(config: Config) -> None:
    rare: list[type[Event]] = []
    all_of_them: list[type[Event]] = []
    on_event(lambda event: rare.append(type(event)))
    on_event(routine=True)(lambda event: all_of_them.append(type(event)))

    @task
    async def work() -> None: ...

    await work.submit()
    await burst(config)
    assert WorkerStarted in rare
    assert WorkerStopped in rare
    assert TaskEnded in all_of_them
    assert TaskEnded not in rare

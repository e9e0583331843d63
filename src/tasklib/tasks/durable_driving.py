"""Carrying out what durable functions call: on the event loop, or in the thread of a sync function."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tasklib.tasks.context import running_task
from tasklib.tasks.durable_effects import CallFunction, Effect, OthersIdle, PauseBeforeRetry, Steps
from tasklib.tasks.durable_run import DurableRun, current_run
from tasklib.tasks.function import TaskFunction

T = TypeVar("T")

_TURNS = 3
"""How many turns of the loop a branch gets to go from one step to the next before the run is suspended."""
_LOOK_AGAIN_SECONDS = 0.01


def run() -> DurableRun:
    """The durable run of the task that is running here."""
    try:
        return current_run.get()
    except LookupError:
        where = "in a task that is not durable" if running_task.get(None) is not None else "outside of a task"
        raise RuntimeError(
            f"steps, sleeps and signals of durable tasks were called {where}. Write @task(durable=True) above the "
            "function, and submit it; in tests, see tasklib.testing."
        ) from None


async def drive(steps: Steps[T]) -> T:
    """Carry out the effects of an operation, on the loop."""
    durable = run()
    answer, error = None, None
    while True:
        try:
            effect = steps.throw(error) if error is not None else steps.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        try:
            answer, error = await _performed(durable, effect), None
        except BaseException as e:
            answer, error = None, e


async def _performed(durable: DurableRun, effect: Effect) -> Any:
    match effect:
        case CallFunction():
            return await called(effect)
        case PauseBeforeRetry(seconds):
            await asyncio.sleep(seconds)
        case OthersIdle():
            await _others_idle(durable)
        case _:
            durable.under_way += 1  # what comes of it may be something to wait for
            try:
                return await durable.journal.perform(effect)
            finally:
                durable.under_way -= 1
    return None


async def called(call: CallFunction) -> Any:
    """Call an async function here, a sync one in a thread: it would block the loop."""
    if _is_async(call.function):
        return await call.function(*call.args, **call.kwargs)
    returned = await asyncio.to_thread(call.function, *call.args, **call.kwargs)
    return await returned if inspect.isawaitable(returned) else returned


def _is_async(function: Callable[..., Any]) -> bool:
    return function.is_async if isinstance(function, TaskFunction) else inspect.iscoroutinefunction(function)


async def _others_idle(durable: DurableRun) -> None:
    while True:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if not durable.under_way or durable.is_suspended:
            return
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def drive_blocking(steps: Steps[T]) -> T:
    """The same in the thread of a sync function."""
    durable = run()
    answer, error = None, None
    while True:
        try:
            effect = steps.throw(error) if error is not None else steps.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        try:
            answer, error = _performed_blocking(durable, effect), None
        except BaseException as e:
            answer, error = None, e


def _performed_blocking(durable: DurableRun, effect: Effect) -> Any:
    match effect:
        case CallFunction(function, args, kwargs):
            return function(*args, **kwargs)
        case PauseBeforeRetry(seconds):
            time.sleep(seconds)
        case OthersIdle():
            pass
        case _:
            return durable.journal.perform_blocking(effect)
    return None

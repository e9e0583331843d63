"""Calling a durable function: a run that ends, or is suspended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tasklib.config import Config
from tasklib.executors.functions import call, call_async, failed
from tasklib.executors.outcomes import Done, Failed, Lost, Suspended
from tasklib.tasks.context import LeaveRun, TaskContext, running_task
from tasklib.tasks.durable_driving import drive, drive_blocking
from tasklib.tasks.durable_effects import (
    Journal,
)
from tasklib.tasks.durable_run import ContinueAsNew, DurableRun, LoseTask, current_run
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.retry import Reject, RetryPolicy


async def call_durable_async(
    function: TaskFunction[Any, Any],
    kwargs: str,
    context: Callable[[], TaskContext],
    journal: Journal,
    config: Config,
) -> Done | Failed | Lost | Suspended:
    """Call an async durable function, from its first line; what is on record is not done again."""
    run = _run(function, journal, config)
    running_task.set(context)
    try:
        await drive(run.begin())
        left = None if run.deadline is None else max(0.0, (run.deadline - run.now()).total_seconds())
        async with asyncio.timeout(left) as deadline:
            outcome = await call_async(function, kwargs, context, config)
    except LeaveRun as e:
        return _left(run, e)
    except TimeoutError:
        assert deadline.expired()
        return failed(Reject(run.past_deadline), function, config)
    except Exception as e:
        return failed(e, function, config)
    return _ended(run, outcome)


def call_durable(
    function: TaskFunction[Any, Any],
    kwargs: str,
    context: Callable[[], TaskContext],
    journal: Journal,
    config: Config,
) -> Done | Failed | Lost | Suspended:
    """The same for a sync function, in its thread."""
    run = _run(function, journal, config)
    running_task.set(context)
    try:
        drive_blocking(run.begin())
        outcome = call(function, kwargs, context, config)
    except LeaveRun as e:
        return _left(run, e)
    except Exception as e:
        return failed(e, function, config)
    return _ended(run, outcome)


def _run(function: TaskFunction[Any, Any], journal: Journal, config: Config) -> DurableRun:
    run = DurableRun(function, journal, function.retry_policy or RetryPolicy.of(config))
    current_run.set(run)
    return run


def _ended(run: DurableRun, outcome: Done | Failed) -> Done | Failed | Suspended:
    # A function that caught the exception which suspends it, and returned, has to wait all the same.
    return _suspended(run) if run.is_suspended and isinstance(outcome, Done) else outcome


def _left(run: DurableRun, why: LeaveRun) -> Lost | Suspended:
    match why:
        case LoseTask():
            return Lost()
        case ContinueAsNew(kwargs=kwargs):
            return Suspended(run.now(), kwargs=kwargs, payload_version=run.function.version)
        case _:
            return _suspended(run)


def _suspended(run: DurableRun) -> Suspended:
    waits = run.waits
    return Suspended(waits.until, waits.signals, waits.seen)

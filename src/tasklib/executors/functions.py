"""Calling a task function: typed arguments in, an outcome out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tasklib.config import Config
from tasklib.errors import TaskExecutionError
from tasklib.executors.exits import is_from_a_signal_handler
from tasklib.executors.outcomes import Done, Failed, done, failed, refused
from tasklib.tasks.context import TaskContext, enter
from tasklib.tasks.function import TaskFunction


async def call_async(
    function: TaskFunction[Any, Any], kwargs: str, context: Callable[[], TaskContext], config: Config, **injected: Any
) -> Done | Failed:
    """Call an async function with its stored arguments.

    CancelledError and GeneratorExit come out as exceptions: only the caller knows whether the function raised them, or
    it was stopped. So does what a signal handler of the program raised in its midst.
    """
    enter(context)
    try:
        arguments = arguments_of(function, kwargs, config)
        if isinstance(arguments, Failed):
            return arguments
        returned = function.function(**arguments, **injected)
        # A decorator may have made a plain function of an async one, and give its result without it.
        return done(await returned if hasattr(returned, "__await__") else returned, function, config)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except (SystemExit, KeyboardInterrupt) as e:
        if is_from_a_signal_handler(e):
            raise
        return failed(e, function, config)
    except BaseException as e:
        return failed(_explained(e, function), function, config)


def call(
    function: TaskFunction[Any, Any], kwargs: str, context: Callable[[], TaskContext], config: Config, **injected: Any
) -> Done | Failed:
    """Call a sync function with its stored arguments. No exception comes out."""
    enter(context)
    try:
        arguments = arguments_of(function, kwargs, config)
        if isinstance(arguments, Failed):
            return arguments
        return done(function.function(**arguments, **injected), function, config)
    except BaseException as e:
        return failed(e, function, config)


def arguments_of(function: TaskFunction[Any, Any], kwargs: str, config: Config) -> dict[str, Any] | Failed:
    """The typed arguments, or why they don't fit. A validator of the function's own may raise anything else."""
    try:
        return function.arguments.from_json(kwargs)
    except TaskExecutionError as e:
        return refused(e, config)


def _explained(error: BaseException, function: TaskFunction[Any, Any]) -> BaseException:
    """What to do about a decorator that runs the async function it wraps, on a loop of its own."""
    if not (function.wraps_async and type(error) is RuntimeError and "running event loop" in str(error)):
        return error
    explained = RuntimeError(
        f"{error}. {function.name} is a plain function around an async one, so it was called on the worker's loop. "
        "If it runs the async one itself, say so: @task(executor='thread')."
    )
    explained.__cause__ = error
    return explained

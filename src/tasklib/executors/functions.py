"""Calling a task function: typed arguments in, an outcome out."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from types import CoroutineType
from typing import Any

from tasklib.config import Config
from tasklib.errors import PayloadDamaged, ResultNotStorable, TaskExecutionError, TaskTimeout, WorkerLost
from tasklib.executors.exits import is_from_a_signal_handler
from tasklib.executors.outcomes import Done, Failed, FailureKind
from tasklib.executors.tracebacks import class_name, error_text
from tasklib.tasks.context import TaskContext, leaving, running_task
from tasklib.tasks.dependencies import provided, run_now
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.payload import dump, limited
from tasklib.tasks.retry import Reject, Retry, Throttled
from tasklib.tasks.surroundings import surrounded, surroundings
from tasklib.tasks.unstorable import UnstorableValue, storable_text


async def call_async(
    function: TaskFunction[Any, Any], kwargs: str, context: Callable[[], TaskContext], config: Config, **injected: Any
) -> Done | Failed:
    """Call an async function with its stored arguments.

    CancelledError and GeneratorExit come out as exceptions: only the caller knows whether the function raised them, or
    it was stopped. So does what a signal handler of the program raised in its midst, and `LeaveRun`.
    """
    running_task.set(context)
    try:
        if surroundings or function.providers:
            return await _call_surrounded(function, kwargs, context, config, injected)
        try:
            arguments = typed_arguments(function, kwargs, context)
        except TaskExecutionError as e:
            return refused(e, config)
        returned = function.function(**arguments, **injected)
        # A decorator may have made a plain function of an async one, and give its result without it.
        is_awaitable = type(returned) is CoroutineType or hasattr(returned, "__await__")
        return done(await returned if is_awaitable else returned, function, config)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except (SystemExit, KeyboardInterrupt) as e:
        if is_from_a_signal_handler(e):
            raise
        return failed(e, function, config)
    except BaseException as e:
        if leave := leaving(e):
            raise leave from None
        return failed(_explained(e, function), function, config)


def call(
    function: TaskFunction[Any, Any], kwargs: str, context: Callable[[], TaskContext], config: Config, **injected: Any
) -> Done | Failed:
    """Call a sync function with its stored arguments. No exception comes out but `LeaveRun`."""
    running_task.set(context)
    try:
        if surroundings or function.providers:
            return run_now(_call_surrounded(function, kwargs, context, config, injected))
        try:
            arguments = typed_arguments(function, kwargs, context)
        except TaskExecutionError as e:
            return refused(e, config)
        return done(function.function(**arguments, **injected), function, config)
    except BaseException as e:
        if leave := leaving(e):
            raise leave from None
        return failed(e, function, config)


async def _call_surrounded(
    function: TaskFunction[Any, Any],
    kwargs: str,
    context: Callable[[], TaskContext],
    config: Config,
    injected: dict[str, Any],
) -> Done | Failed:
    """Call a function within what surrounds attempts, which sees every error: of arguments and results, too."""
    refusal: TaskExecutionError | None = None
    try:
        with surrounded(function):
            try:
                arguments = typed_arguments(function, kwargs, context)
            except TaskExecutionError as e:
                refusal = e
                raise
            return Done(await result_with_dependencies(function, arguments, config, injected))
    except (TaskExecutionError, ResultNotStorable) as e:
        if isinstance(e, ResultNotStorable):
            return Failed(error_text(e, config.max_error_bytes))
        if e is refusal:
            return refused(e, config)
        raise


async def result_with_dependencies(
    function: TaskFunction[Any, Any], arguments: Mapping[str, Any], config: Config, injected: Mapping[str, Any]
) -> str:
    """Call a function with its dependencies, which last until its result is known as JSON text."""
    async with provided(function.providers) as dependencies:
        returned = function.function(**arguments, **injected, **dependencies)
        value = await returned if function.is_async and hasattr(returned, "__await__") else returned
        return result_text(value, config, function.results.to_json)


def typed_arguments(
    function: TaskFunction[Any, Any], kwargs: str, context: Callable[[], TaskContext]
) -> dict[str, Any]:
    """The arguments that a row has, as the function declares them now; TaskExecutionError if they don't fit.

    A validator of the function's own may raise anything else.
    """
    if function.versions is None:
        return function.arguments.from_json(kwargs)
    return function.versions.read(function.arguments, kwargs, context().payload_version)


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


# ---- outcomes ----

_NONE = '{"value":null}'
_LONGEST_NAME = 500


def done(value: Any, function: TaskFunction[Any, Any], config: Config) -> Done | Failed:
    """The outcome of a function that returned `value`."""
    try:
        return Done(result_text(value, config, function.results.to_json))
    except ResultNotStorable as e:
        return Failed(error_text(e, config.max_error_bytes))


def result_text(value: Any, config: Config, write: Callable[[Any], str] = dump) -> str:
    """A return value as the JSON text to store, or ResultNotStorable. `write` knows what the function declares."""
    if value is None:
        return _NONE
    try:
        text = f'{{"value":{write(value)}}}'
        # A character takes at most four bytes: most results are far from the limit.
        return (
            text if 4 * len(text) <= config.max_payload_bytes else limited(text, config.max_payload_bytes, "the result")
        )
    except UnstorableValue as e:
        raise ResultNotStorable(_refusal(value, e)) from None


def _refusal(value: Any, why: UnstorableValue) -> str:
    if hasattr(value, "__await__"):
        if isinstance(value, CoroutineType):
            value.close()  # it never runs, and Python would complain
        return (
            f"the function returned a {type(value).__name__} that was not awaited. Make it `async def` and write "
            "`return await ...`; a decorator around an async function has to do the same."
        )
    if hasattr(value, "__aiter__"):
        return (
            f"the function returned an {type(value).__name__}; a task returns one value. Make it `async def` and write "
            "`return [item async for item in ...]`."
        )
    place = f" at {why.path}" if why.path else ""
    return (
        f"the return value ({type(value).__name__}) can't be stored{place}: {why.reason}. "
        "Return what Pydantic can turn into JSON and, if the function declares a type, read back as that."
    )


def failed(error: BaseException, function: TaskFunction[Any, Any], config: Config) -> Failed:
    """The outcome of a function that raised. Never raises itself, so that no exception leaves an attempt unsettled."""
    text = error_text(error, config.max_error_bytes)
    raised = storable_text(class_name(error), _LONGEST_NAME)
    try:
        return _judged(error, text, raised, function)
    except BaseException:  # its class, or one in `non_retriable`, raised when it was asked what it is
        return Failed(text, raised=raised)


def _judged(error: BaseException, text: str, raised: str, function: TaskFunction[Any, Any]) -> Failed:
    match error:
        case Retry() | Throttled() if function.at_most_once:
            text = f"{text}\n{function.name} runs at most once, so it is not retried."
            return Failed(text, FailureKind.REJECTED, retriable=False, raised=raised)
        case Retry():
            return Failed(text, FailureKind.RETRY, delay_seconds=_delay(error.seconds), raised=raised)
        case Throttled():
            delay = _delay(error.seconds) or 0.0
            return Failed(text, FailureKind.THROTTLED, delay_seconds=delay, raised=raised, limit=_held_limit(error))
        case Reject() | PayloadDamaged():  # what was damaged stays so
            return Failed(text, FailureKind.REJECTED, retriable=False, raised=raised)
        case TaskTimeout():
            retriable = not isinstance(error, function.non_retriable)
            return Failed(text, FailureKind.TIMEOUT, retriable=retriable, raised=raised)
        case WorkerLost():
            return Failed(text, FailureKind.CRASH, raised=raised)
    return Failed(text, retriable=not isinstance(error, function.non_retriable), raised=raised)


def _delay(seconds: object) -> float | None:
    # A subclass may have put anything there.
    return float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < math.inf else None


def _held_limit(error: Throttled) -> str | None:
    return error.limit if error.limit is None or error.key is None else f"{error.limit}\x02{error.key}"


def refused(error: TaskExecutionError, config: Config) -> Failed:
    """The outcome of a row whose arguments don't fit the function: it may fit a newer one, so it is retried."""
    return Failed(storable_text(f"{type(error).__name__}: {error}", config.max_error_bytes))


if sys.version_info >= (3, 12):

    def eager_task(
        coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: Context | None = None
    ) -> asyncio.Task[None]:
        """Run a coroutine as a task that starts now: one that never waits is over when this returns."""
        return asyncio.Task(coroutine, loop=loop, context=context, eager_start=True)

else:

    def eager_task(
        coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: Context | None = None
    ) -> asyncio.Task[None]:
        """Run a coroutine as a task."""
        return asyncio.Task(coroutine, loop=loop, context=context)

"""How an attempt ended, as a value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import CoroutineType
from typing import Any, TypeAlias

from tasklib.config import Config
from tasklib.errors import ResultNotStorable, TaskExecutionError, TaskTimeout, WorkerLost
from tasklib.executors.tracebacks import class_name, error_text
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.payload import UnstorableValue, dump, limited, storable_text
from tasklib.tasks.retry import Reject, Retry


class FailureKind(StrEnum):
    """Why an attempt failed; also the `outcome` in a task's history."""

    ERROR = "error"
    TIMEOUT = "timeout"
    RETRY = "retry"
    REJECTED = "rejected"
    CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Done:
    """The function returned; `result` is the JSON text to store."""

    result: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The function raised, ran out of time, or took its process down."""

    error: str
    kind: FailureKind = FailureKind.ERROR
    retriable: bool = True
    delay_seconds: float | None = None
    """How long the task asked to wait; None leaves it to the policy."""
    raised: str | None = None
    """The class of the exception, for traces."""


@dataclass(frozen=True, slots=True)
class Released:
    """The task goes back as it was: the worker is going away, or the function could not be called."""

    reason: str = ""
    """Why the function could not be called: no process could be started for it, say. The worker reports it."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The task was cancelled and the attempt has stopped; `error` is what it said at the end."""

    error: str


@dataclass(frozen=True, slots=True)
class Committed:
    """A transactional attempt has committed its own completion: nothing is left to write."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is somebody else's by now: nothing may be written."""


Outcome: TypeAlias = Done | Failed | Released | Cancelled | Committed | Lost


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
        return limited(f'{{"value":{write(value)}}}', config.max_payload_bytes, "the result")
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
        case Retry() if function.at_most_once:
            text = f"{text}\n{function.name} runs at most once, so it is not tried again."
            return Failed(text, FailureKind.REJECTED, retriable=False, raised=raised)
        case Retry():
            return Failed(text, FailureKind.RETRY, delay_seconds=_delay(error.seconds), raised=raised)
        case Reject():
            return Failed(text, FailureKind.REJECTED, retriable=False, raised=raised)
        case TaskTimeout():
            return Failed(text, FailureKind.TIMEOUT, raised=raised)
        case WorkerLost():
            return Failed(text, FailureKind.CRASH, raised=raised)
    return Failed(text, retriable=not isinstance(error, function.non_retriable), raised=raised)


def _delay(seconds: object) -> float | None:
    # A subclass may have put anything there.
    return float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < math.inf else None


def refused(error: TaskExecutionError, config: Config) -> Failed:
    """The outcome of a row whose arguments don't fit the function: it may fit a newer one, so it is retried."""
    return Failed(storable_text(f"{type(error).__name__}: {error}", config.max_error_bytes))

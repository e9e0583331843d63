"""The settings of `@task`, checked where the function is written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from tasklib.errors import InvalidTaskFunction
from tasklib.tasks.options import MAX_DELAY_SECONDS, MAX_NAME_BYTES, Options, is_name
from tasklib.tasks.origins import written
from tasklib.tasks.retry import RetryPolicy

if TYPE_CHECKING:
    from tasklib.schedules import Schedule
    from tasklib.tasks.function import TaskFunction

ScheduleOrSeveral: TypeAlias = "Schedule | str | Iterable[Schedule | str]"


class Executor(StrEnum):
    """Where a task function runs."""

    LOOP = "loop"
    """On the worker's event loop: async functions."""
    THREAD = "thread"
    """In a thread: sync functions. A thread can't be killed."""
    PROCESS = "process"
    """In a child process that can be killed; either kind of function."""


def checked_name(name: str | None, function: Callable[..., Any]) -> str:
    if isinstance(function, classmethod) or _is_method(function):
        described = function.__qualname__
        raise InvalidTaskFunction(
            f"{described} is a method, and a worker has no {described.rpartition('.')[0]} to call it on. Put @task on "
            "a function outside of the class, or on a @staticmethod, that takes what it needs as arguments."
        )
    if not callable(function) or isinstance(function, type) or not hasattr(function, "__name__"):
        raise InvalidTaskFunction(f"@task needs a function, not {function!r}.")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidTaskFunction(f"{function.__name__} is a generator; a task returns one value.")
    name = function.__name__ if name is None else name
    if not is_name(name):
        raise InvalidTaskFunction(f"a task's name is a string of 1 to {MAX_NAME_BYTES} bytes, not {name!r}.")
    return name


def checked_aliases(aliases: object, name: str) -> tuple[str, ...]:
    if isinstance(aliases, str) or not isinstance(aliases, Iterable):
        raise InvalidTaskFunction(f"{name}: aliases must be a list of names such as ['mail.send'], not {aliases!r}.")
    several = tuple(aliases)
    for alias in several:
        if not is_name(alias) or alias == name:
            raise InvalidTaskFunction(
                f"{name}: an alias is another name of 1 to {MAX_NAME_BYTES} bytes, not {alias!r}."
            )
    return several


def checked_compress(compress: object, name: str) -> bool:
    if not isinstance(compress, bool):
        raise InvalidTaskFunction(f"{name}: compress must be True or False, not {compress!r}.")
    return compress


def _is_method(function: Callable[..., Any]) -> bool:
    """Whether it was written in a class body and takes `self` or `cls`."""
    source = written(function)
    around = getattr(source, "__qualname__", "").rpartition(".")[0]
    if not inspect.isfunction(source) or not around or around.endswith("<locals>") or inspect.ismethod(function):
        return False
    return next(iter(inspect.signature(source).parameters), None) in ("self", "cls")


def checked_executor(executor: str | None, name: str, is_async: bool, transactional: bool) -> Executor:
    if executor is None:
        return Executor.LOOP if is_async else Executor.THREAD
    try:
        chosen = Executor(executor)
    except ValueError:
        raise InvalidTaskFunction(f"{name}: executor must be one of {', '.join(Executor)}, not {executor!r}.") from None
    if chosen is Executor.LOOP and not is_async:
        raise InvalidTaskFunction(f"{name}: executor='loop' needs an async function; this one would block the loop.")
    if chosen is Executor.THREAD and is_async:
        raise InvalidTaskFunction(f"{name}: an async function runs on the loop or in a process, not in a thread.")
    if chosen is Executor.PROCESS and transactional:
        raise InvalidTaskFunction(
            f"{name}: a transactional task can't run in a process: its connection belongs to the worker."
        )
    return chosen


def refuse_retries(function: TaskFunction[Any, Any], defaults: Options) -> None:
    """What runs at most once is never tried again, so nothing may be said of retries."""
    name = function.name
    if function.transactional:
        raise InvalidTaskFunction(
            f"{name}: transactional=True and at_most_once=True exclude each other: the writes of a transactional task "
            "take effect exactly once already."
        )
    given = {
        "max_retries": defaults.max_retries,
        "retry_policy": function.retry_policy,
        "non_retriable": function.non_retriable,
    }
    if said := [option for option, value in given.items() if value]:
        raise InvalidTaskFunction(
            f"{name}: at_most_once=True excludes {' and '.join(said)}: once begun, the task is never retried."
        )


def refuse_with_durable(function: TaskFunction[Any, Any]) -> None:
    name = function.name
    if function.at_most_once:
        raise InvalidTaskFunction(
            f"{name}: durable=True and at_most_once=True exclude each other: a durable function is called again after "
            "each suspension."
        )
    if function.takes_connection:
        raise InvalidTaskFunction(
            f"{name}: a durable function takes no connection: no transaction can stay open while it is suspended. "
            "Write to the database in a step: step('book', book, order, transactional=True)."
        )
    if function.executor is Executor.PROCESS:
        raise InvalidTaskFunction(
            f"{name}: a durable function can't run in a process: its steps are recorded by the worker. Put the part "
            "that needs a process into a task of its own."
        )


def checked_deadline(seconds: object, name: str, *, durable: bool) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_DELAY_SECONDS:
        raise InvalidTaskFunction(
            f"{name}: deadline_seconds must be a number of seconds from 0 to {MAX_DELAY_SECONDS:,}, not {seconds!r}."
        )
    if not durable:
        raise InvalidTaskFunction(
            f"{name}: deadline_seconds is for durable functions (durable=True); timeout_seconds limits an attempt."
        )
    return float(seconds)


def checked_schedules(given: ScheduleOrSeveral, function: TaskFunction[..., Any]) -> tuple[Schedule, ...]:
    """Schedules with names, whose options and arguments fit the function."""
    if not given:
        return ()
    from tasklib.schedules import Schedule  # calendars and time zones: most tasks have no schedule

    several = (given,) if isinstance(given, Schedule | str) else tuple(given)
    named = [_with_name(Schedule.of(each), function.name) for each in several]
    for schedule in named:
        Options(**schedule.options)
        function.arguments.to_json(schedule.args)
    names = [schedule.name for schedule in named]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InvalidTaskFunction(
            f"{function.name} has {len(named)} schedules, of which several are named {min(map(str, repeated))!r}. "
            "Give each a name of its own: Schedule(..., name='...')."
        )
    return tuple(named)


def _with_name(schedule: Schedule, default: str) -> Schedule:
    return schedule if schedule.name is not None else replace(schedule, name=default)


def checked_policy(policy: object, name: str) -> RetryPolicy | None:
    if policy is not None and not isinstance(policy, RetryPolicy):
        raise InvalidTaskFunction(f"{name}: retry_policy must be a RetryPolicy(...), not {policy!r}.")
    return policy


def checked_exceptions(classes: object, name: str) -> tuple[type[BaseException], ...]:
    given: tuple[Any, ...] = classes if isinstance(classes, tuple) else (classes,)
    if not all(isinstance(c, type) and issubclass(c, BaseException) for c in given):
        raise InvalidTaskFunction(f"{name}: non_retriable must be exception classes, not {classes!r}.")
    return given

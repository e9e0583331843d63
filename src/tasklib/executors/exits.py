"""`SystemExit` and `KeyboardInterrupt` in a task function end its attempt; from a signal handler, the program.

An asyncio task that raises one of the two raises it out of the event loop as well. So one in a task that a function
creates (`asyncio.create_task`, `gather`, `TaskGroup`) would end the worker, and then the next worker that runs it.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context
from types import CodeType
from typing import Any

from tasklib.executors.tracebacks import code_of_frames, headline
from tasklib.tasks.context import running_task


class ExitInSubtask(BaseException):
    """What the task that created the other one gets instead. No `except Exception` takes it for an error."""


@contextmanager
def exits_kept_in_attempts() -> Iterator[None]:
    """While the block runs, no task that an attempt creates on this loop can end the loop.

    A task factory that the program has set is used as before.
    """
    loop = asyncio.get_running_loop()
    factory = _Factory(loop.get_task_factory())
    loop.set_task_factory(factory)
    try:
        yield
    finally:
        factory.is_used = False
        if loop.get_task_factory() is factory:  # else another one was set since, which calls this one
            loop.set_task_factory(factory.before)


def is_from_a_signal_handler(error: BaseException) -> bool:
    """Whether a handler that the program has set for a signal raised it, in the midst of whatever ran then."""
    if threading.current_thread() is not threading.main_thread():
        return False  # Python calls handlers in the main thread only
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    return any(code in handlers for code in code_of_frames(error))


def _code(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    # Not callable(): the code of a callable object is that of its __call__.
    function = handler if hasattr(handler, "__code__") else getattr(handler, "__call__", None)  # noqa: B004
    return getattr(function, "__code__", None)


class _Factory:
    """Makes the tasks of a loop, those of attempts from coroutines that can't end it."""

    def __init__(self, before: Callable[..., Any] | None) -> None:
        self.before = before
        self.is_used = True
        self._make = before or _new_task

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if self.is_used and _is_in_task(options.get("context")) and type(coroutine) is not _Contained:
            coroutine = _Contained(coroutine)
        return self._make(loop, coroutine, **options)


def _is_in_task(variables: Context | None) -> bool:
    """Whether these context variables, or those in use here, are of a running task."""
    return (running_task.get(None) if variables is None else variables.get(running_task)) is not None


def _new_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(coroutine, loop=loop, **options)


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine whose exits come out as another exception. All else about it is the coroutine's own."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def send(self, value: Any) -> Any:
        try:
            return self._coroutine.send(value)
        except (SystemExit, KeyboardInterrupt) as e:
            raise _kept(e) from e

    def throw(self, *error: Any) -> Any:
        try:
            return self._coroutine.throw(*error)
        except (SystemExit, KeyboardInterrupt) as e:
            raise _kept(e) from e

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:  # the names and frames that asyncio shows
        return getattr(self._coroutine, name)


def _kept(error: BaseException) -> ExitInSubtask:
    """What to raise instead; a signal handler's goes on as it is."""
    if is_from_a_signal_handler(error):
        raise error
    return ExitInSubtask(f"{headline(error)} (in an asyncio task that the task function created)")

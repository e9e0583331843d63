"""What a framework does around the tasks of this program: around each attempt, and before a child process imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from tasklib.tasks.function import TaskFunction

Surrounding: TypeAlias = "Callable[[TaskFunction[Any, Any]], AbstractContextManager[Any]]"

surroundings: list[Surrounding] = []
"""Entered in this order, where the function runs: in its thread, on the loop, in its child process."""


thread_ends: list[Callable[[], None]] = []
"""Called in each thread of a worker before it ends."""

_preparations: dict[str, Callable[[], str]] = {}
_finishings: dict[str, Callable[[], str]] = {}


def prepare_children(module: str, argument: Callable[[], str]) -> None:
    """In each child process, before anything of the program is imported, call `prepare(argument)` of this module.

    It may be called more than once.
    """
    _preparations[module] = argument


def finish_children(module: str, argument: Callable[[], str]) -> None:
    """In each child process, once the program's modules are imported, call `finish(argument)` of this module."""
    _finishings[module] = argument


def finishings() -> list[list[str]]:
    """What children call after their imports, as things are now."""
    return [[module, argument()] for module, argument in _finishings.items()]


def preparations() -> list[list[str]]:
    """What children are to be prepared with, as things are now."""
    return [[module, argument()] for module, argument in _preparations.items()]


def surround_attempts(surrounding: Surrounding) -> None:
    """Enter this context manager around each call of a task function, in the worker and in its child processes.

    It is entered in the function's own thread, loop or process; what the function raises passes through it.
    """
    if surrounding not in surroundings:
        surroundings.append(surrounding)


def at_thread_end(end: Callable[[], None]) -> None:
    """Call this in each thread of a worker before it ends."""
    if end not in thread_ends:
        thread_ends.append(end)


@contextmanager
def surrounded(function: TaskFunction[Any, Any]) -> Iterator[None]:
    """All of them. What the function raises comes out, also if one of them swallows it."""
    raised: BaseException | None = None
    with ExitStack() as stack:
        for surrounding in surroundings:
            stack.enter_context(surrounding(function))
        try:
            yield
        except BaseException as e:
            raised = e
            raise
    if raised is not None:
        raise raised

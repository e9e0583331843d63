"""Which task functions this program has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tasklib.errors import InvalidTaskFunction, TaskNotFound
from tasklib.tasks.origins import place, same_function

if TYPE_CHECKING:
    from tasklib.tasks.function import TaskFunction

functions: dict[str, TaskFunction[Any, Any]] = {}
"""By their names and aliases; only `register` adds to it."""
_discoveries: list[Callable[[], None]] = []


def register(function: TaskFunction[Any, Any]) -> None:
    """Add a task function under its name and its aliases. The same one again (a reloaded module) replaces itself."""
    for name in (function.name, *function.aliases):
        known = functions.get(name)
        if known is not None and not same_function(known.function, function.function):
            raise InvalidTaskFunction(
                f"two functions want the task name {name!r}: {place(known.function)} and "
                f"{place(function.function)}. Give one of them another: @task(name='...')."
            )
    for name in (function.name, *function.aliases):
        functions[name] = function


def find(target: object) -> TaskFunction[Any, Any]:
    """The task function behind a task function, a plain function or a name; else TaskNotFound with near matches."""
    from tasklib.tasks.function import TaskFunction

    if isinstance(target, TaskFunction):
        return target
    if isinstance(target, str):
        if target in functions:
            return functions[target]
        raise TaskNotFound.named(target, functions)
    for known in functions.values():
        if known.function is target:
            return known
    name = getattr(target, "__name__", None)
    if callable(target) and name:
        raise TaskNotFound(f"the function {name!r} is not a task. Put @task above it.", name=name)
    raise TaskNotFound(f"expected a task function or a task's name, not {target!r}.")


def discover_with(find: Callable[[], None]) -> None:
    """Call this before a worker serves what is registered: it imports modules that the program has only announced."""
    if find not in _discoveries:
        _discoveries.append(find)


def discover() -> None:
    """Register what programs have announced. It may be called more than once."""
    for find in _discoveries:
        find()


def distinct() -> list[TaskFunction[Any, Any]]:
    """Each function once, however many aliases it has."""
    return [function for name, function in list(functions.items()) if name == function.name]


def names() -> list[str]:
    return sorted(functions)


@contextmanager
def isolated() -> Iterator[None]:
    """An empty registry inside the block, the old one after it; for tests."""
    before, found_by = dict(functions), list(_discoveries)
    functions.clear()
    _discoveries.clear()
    try:
        yield
    finally:
        functions.clear()
        functions.update(before)
        _discoveries[:] = found_by

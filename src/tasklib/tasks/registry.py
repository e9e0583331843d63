"""Which task functions this program has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tasklib.errors import InvalidTaskFunction, TaskNotFound
from tasklib.tasks.origins import place, same_function

if TYPE_CHECKING:
    from tasklib.tasks.function import TaskFunction

_registered: dict[str, TaskFunction[Any, Any]] = {}


def register(function: TaskFunction[Any, Any]) -> None:
    """Add a task function under its name. The same function again (a reloaded module) replaces itself."""
    known = _registered.get(function.name)
    if known is not None and not same_function(known.function, function.function):
        raise InvalidTaskFunction(
            f"two functions want the task name {function.name!r}: {place(known.function)} and "
            f"{place(function.function)}. Give one of them another: @task(name='...')."
        )
    _registered[function.name] = function


def find(target: object) -> TaskFunction[Any, Any]:
    """The task function behind a task function, a plain function or a name; else TaskNotFound with near matches."""
    from tasklib.tasks.function import TaskFunction

    if isinstance(target, TaskFunction):
        return target
    if isinstance(target, str):
        if target in _registered:
            return _registered[target]
        raise TaskNotFound.named(target, _registered)
    for known in _registered.values():
        if known.function is target:
            return known
    name = getattr(target, "__name__", None)
    if callable(target) and name:
        raise TaskNotFound(f"the function {name!r} is not a task. Put @task above it.", name=name)
    raise TaskNotFound(f"expected a task function or a task's name, not {target!r}.")


def get(name: str) -> TaskFunction[Any, Any] | None:
    return _registered.get(name)


def names() -> list[str]:
    return sorted(_registered)


def count() -> int:
    return len(_registered)


def all_functions() -> list[TaskFunction[Any, Any]]:
    return list(_registered.values())


@contextmanager
def isolated() -> Iterator[None]:
    """An empty registry inside the block, the old one after it; for tests."""
    before = dict(_registered)
    _registered.clear()
    try:
        yield
    finally:
        _registered.clear()
        _registered.update(before)

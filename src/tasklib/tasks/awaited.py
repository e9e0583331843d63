"""What an asynchronous call returns before it is awaited: a coroutine that says so when it is taken for the result."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_unmarked: list[Callable[..., Any]] = []


def returns_awaited(function: F) -> F:
    """Mark a function that returns an `Awaited` as one to await: frameworks ask before they call, or use a thread."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    _unmarked.append(function)
    return function


def mark_for_asyncio() -> None:
    """The same before Python 3.12, where only asyncio has such a mark: done when asyncio is imported anyway."""
    if sys.version_info < (3, 12):
        import asyncio

        # The private mark is the only one that asyncio.iscoroutinefunction knows before 3.12.
        while _unmarked:
            _unmarked.pop().__dict__["_is_coroutine"] = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]


class Awaited(Coroutine[Any, Any, T]):
    """A coroutine that knows what its caller should have written.

    task = get_task(id)
    task.state          # AttributeError: ... Write `await tasklib.get_task(...)`
    """

    __slots__ = ("_call", "_coroutine", "_instead")

    def __init__(self, coroutine: Coroutine[Any, Any, T], call: str, instead: str | None = None) -> None:
        self._coroutine = coroutine
        self._call = call
        self._instead = instead

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __getattr__(self, name: str) -> Any:
        # asyncio and debuggers probe for attributes of coroutines.
        if name.startswith(("__", "cr_")):
            return getattr(self._coroutine, name)
        raise AttributeError(f"{self._reason} It has no {name!r} before. {self._advice}", name=name)

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self._reason} {self._advice}")

    def __getitem__(self, _: object) -> NoReturn:
        raise TypeError(f"{self._reason} {self._advice}")

    def __len__(self) -> NoReturn:
        raise TypeError(f"{self._reason} {self._advice}")

    def __repr__(self) -> str:
        return f"<{self._call}(...), not awaited>"

    @property
    def _reason(self) -> str:
        return f"{self._call}(...) was not awaited."

    @property
    def _advice(self) -> str:
        instead = f", or `{self._instead}(...)` in synchronous code" if self._instead else ""
        return f"Write `await {self._call}(...)`{instead}."

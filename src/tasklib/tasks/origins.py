"""Where a task function was written: distinguishes two functions of one name from one that was loaded twice."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any


def written(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as its author wrote it, below all decorators that use `functools.wraps`."""
    try:
        source: Callable[..., Any] = inspect.unwrap(function)
    except ValueError:  # it wraps itself
        return function
    return source


def same_function(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether both were written in the same place: reloaded, or imported as `__main__` and by its module's name."""
    ones, others = list(_sources(one)), list(_sources(other))
    return len(ones) == len(others) and all(map(_same_place, ones, others))


def place(function: Callable[..., Any]) -> str:
    """The function's name and line, for errors."""
    source = written(function)
    code = getattr(source, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{source.__module__}.{source.__qualname__}{where}"


def source_file(function: Callable[..., Any]) -> str | None:
    """The file a function was written in, if it is there."""
    file = _file(written(function))
    return file if file is not None and os.path.exists(file) else None


def _sources(function: Callable[..., Any], seen: frozenset[int] = frozenset()) -> Iterator[Callable[..., Any]]:
    """The function as written, then those it closes over: a decorator without `wraps` keeps its function there."""
    source = written(function)
    if id(source) in seen:
        return
    yield source
    for cell in getattr(source, "__closure__", None) or ():
        try:
            content = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        if isinstance(content, FunctionType):
            yield from _sources(content, seen | {id(source)})


def _same_place(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    if one.__qualname__ != other.__qualname__:
        return False
    if one.__module__ == other.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
        return True  # typed into an interpreter or a notebook, where each input counts as a file
    file, other_file = _file(one), _file(other)
    # A module's file tells that `__main__` and the module are the same; "<string>" and the like tell nothing.
    return file == other_file and (file is not None or one.__module__ == other.__module__)


def _file(function: Callable[..., Any]) -> str | None:
    code = getattr(function, "__code__", None)
    name: str = code.co_filename if code else "<none>"
    return None if name.startswith("<") else os.path.realpath(name)

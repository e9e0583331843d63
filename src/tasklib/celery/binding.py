"""Celery's positional arguments on TaskLib's keywords: `add.delay(2, 3)` becomes the row `{"x": 2, "y": 3}`.

So a task is the same row whether `tasklib.celery` or a function with `@task` submits it. Arguments that have no name
go into a list: those of `*args`, and those for a function that only another program has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tasklib.celery.values import plain, revived

ARGS = "_args"
"""The arguments without a name."""
PREVIOUS = "_previous"
"""The result of the task before, in front of those."""
HEADER = "_celery"
"""What the row's columns don't tell: `expires`, `headers`, `ignore_result`."""
_RESERVED = (ARGS, PREVIOUS, HEADER)
LATER: Final = object()
"""Stands for an argument that is the result of another task."""


class Binding:
    """The parameters of one function."""

    def __init__(self, function: Callable[..., Any], name: str, *, bound: bool, typing: bool = True) -> None:
        self.name = name
        self.typing = typing
        parameters = list(inspect.signature(function).parameters.values())[1 if bound else 0 :]
        self.signature = inspect.Signature(parameters)
        unnamed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
        self._takes_list = any(p.kind in unnamed for p in parameters)
        self._others = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self._names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}

    @property
    def payload_signature(self) -> inspect.Signature:
        """Of the function that the worker calls. Nothing is required there: arguments may come as a list."""
        names = [*sorted(self._names), *_RESERVED]
        made = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names]
        if self._others is not None:
            made.append(inspect.Parameter(self._others, inspect.Parameter.VAR_KEYWORD))
        return inspect.Signature(made)

    def payload(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of one task by name. TypeError if they don't fit the function.

        An argument that is LATER stays as it is, under the name it has in the row.
        """
        if self.typing:
            try:
                bound = self.signature.bind(*args, **kwargs)
            except TypeError as e:
                raise TypeError(f"{self.name}: {e}") from None
        if self._takes_list or not self.typing:
            return payload_of_unknown(args, kwargs)
        named = dict(bound.arguments)
        if self._others is not None:
            named.update(named.pop(self._others, {}))
        return {name: _written(value) for name, value in named.items()}


def payload_of_unknown(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a function whose parameters are not known here."""
    named = {name: _written(value) for name, value in kwargs.items()}
    if args and args[0] is LATER:
        named[PREVIOUS] = LATER
        args = args[1:]
    return {ARGS: [_written(value) for value in args], **named} if args else named


def called_with(payload: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a row, as the function is called with them."""
    args = [revived(payload[PREVIOUS])] if PREVIOUS in payload else []
    args += [revived(value) for value in payload.get(ARGS) or ()]
    return args, {name: revived(value) for name, value in payload.items() if name not in _RESERVED}


def _written(value: Any) -> Any:
    return value if value is LATER else plain(value)

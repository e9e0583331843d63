"""Options that several commands have in common, declared once as the parameters of a function that reads them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

Command = Callable[..., None]


def option_group(parameter: str, read: Callable[..., Any], *, last: bool = False) -> Callable[[Command], Command]:
    """A decorator that gives a command the options of `read`; its `parameter` gets what `read` returns.

    Typer learns a command's options from its signature, so the command gets one with both. The options are shown in
    the place of the parameter, or after all others.
    """
    options = _parameters(read)

    def decorate(command: Command) -> Command:
        parameters: dict[str, inspect.Parameter] = {}
        for name, own in _parameters(command).items():
            if name != parameter:
                parameters[name] = own
            elif not last:
                parameters |= options
        parameters |= options

        @functools.wraps(command)
        def run(**values: Any) -> None:
            group = read(**{name: values.pop(name) for name in options})
            command(**{parameter: group}, **values)

        vars(run)["__signature__"] = inspect.Signature(list(parameters.values()))
        run.__annotations__ = {name: each.annotation for name, each in parameters.items()}
        return run

    return decorate


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    types = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    keyword = inspect.Parameter.KEYWORD_ONLY
    return {name: p.replace(annotation=types[name], kind=keyword) for name, p in parameters.items()}

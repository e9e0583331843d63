"""`key=value` on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import typer


def pairs(option: str, items: Iterable[str] | None) -> dict[str, Any]:
    """A mapping from `key=value` words. A value that is JSON means that, any other is a string."""
    found: dict[str, Any] = {}
    for item in items or ():
        key, equals, text = item.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{item!r} is not of the form key=value.", param_hint=option)
        if key in found:
            raise typer.BadParameter(f"{key!r} is given twice.", param_hint=option)
        found[key] = value(text)
    return found


def value(text: str) -> Any:
    """JSON if it is JSON, else the text itself: 5 is a number, hello and NaN are strings."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def mapping(option: str, text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise typer.BadParameter(f"not valid JSON: {e}.", param_hint=option) from None
    if not isinstance(found, dict):
        raise typer.BadParameter('must be a JSON object, such as \'{"to": "a@example.com"}\'.', param_hint=option)
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(constant)

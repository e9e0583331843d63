"""Marks on type hints, such as `Sealed[str]`: which parameters have one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin


def marked_parameters(hints: Mapping[str, Any], mark: object) -> frozenset[str]:
    """The parameters whose type hints carry this mark, themselves or in a union such as `Sealed[str] | None`."""
    return frozenset(name for name, hint in hints.items() if name != "return" and _has(hint, mark))


def _has(hint: Any, mark: object) -> bool:
    if get_origin(hint) is Annotated and mark in hint.__metadata__:
        return True
    return any(_has(part, mark) for part in get_args(hint))

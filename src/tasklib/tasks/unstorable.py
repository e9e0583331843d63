"""Values that can't be stored as jsonb: found in a value or its JSON text, and why."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

MAX_DEPTH = 100
"""Levels of lists and mappings in one value. Pydantic writes 255 of them, but reads only 200."""
MAX_DIGITS = 4300
"""Digits of a whole number: as many as Python converts from text by default."""


class UnstorableValue(ValueError):
    """A value that can't be stored as jsonb. `path` says where, e.g. "rows.3.price"."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path


def storable_text(text: str, limit: int | None = None) -> str:
    """Text for a text column: NUL and lone surrogates become visible, the middle of a long one is left out."""
    text = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
    if limit is not None and len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half:,} characters left out ...\n{text[-half:]}"
    return text


def reason_of(error: BaseException) -> str:
    """Why Pydantic could not write a value, in our words."""
    text = str(error).removeprefix("Error serializing to JSON: ")
    if "surrogates not allowed" in text:
        return "contains a lone surrogate, which is not valid Unicode"
    if "Circular reference" in text or "depth exceeded" in text or isinstance(error, RecursionError):
        return "refers to itself or is nested too deeply"
    if "Unable to serialize unknown type" in text:
        return f"has a type that can't be stored as JSON ({text.rpartition(': ')[2]})"
    return text


def refuse_in_text(text: str) -> None:
    """Refuse JSON text with a value that can't be stored in it."""
    _refuse(json.loads(text, parse_int=_whole_number), _problem)


def refuse_numbers(value: Any) -> None:
    """Refuse a value with a number in it that JSON doesn't have."""
    _refuse(value, _problem_of_number)


def without_repeats(pairs: list[tuple[str, Any]]) -> None:
    """For `json.loads`: refuse an object that has a key twice."""
    if len({key for key, _ in pairs}) < len(pairs):
        raise UnstorableValue("has two keys that are the same text in JSON, of which one would be lost")


class _TooLong:
    """Stands for a whole number that readers could not parse."""


def _whole_number(digits: str) -> int | _TooLong:
    return int(digits) if len(digits.lstrip("-")) <= MAX_DIGITS else _TooLong()


def _problem(leaf: Any) -> str | None:
    if isinstance(leaf, str) and "\x00" in leaf:
        return "contains the character \\u0000, which PostgreSQL can't store"
    if isinstance(leaf, _TooLong):
        return f"is a whole number of more than {MAX_DIGITS} digits"
    return _problem_of_number(leaf)


def _problem_of_number(leaf: Any) -> str | None:
    return f"is {leaf}, which JSON doesn't have" if isinstance(leaf, float) and not math.isfinite(leaf) else None


def _refuse(value: Any, problem: Callable[[Any], str | None]) -> None:
    for path, leaf in _leaves(value):
        if reason := problem(leaf):
            raise UnstorableValue(reason, ".".join(path))


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if len(path) > MAX_DEPTH:
        raise UnstorableValue(f"is nested more than {MAX_DEPTH} levels deep", path[0])
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield path, key
            yield from _leaves(item, (*path, str(key)))
    elif isinstance(value, Sequence | Set) and not isinstance(value, str | bytes | bytearray):
        for i, item in enumerate(value):
            yield from _leaves(item, (*path, str(i)))
    else:
        yield path, value

"""JSON that PostgreSQL can store and every worker can read: the rest is refused here, before anything is written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from pydantic_core import PydanticSerializationError, SchemaSerializer, core_schema, to_json

from tasklib.tasks import secrets
from tasklib.tasks.round_trip import is_json, with_whole_floats

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


def dump(value: Any) -> str:
    """Any value Pydantic can serialise, as checked JSON text."""
    try:
        text = to_json(value, inf_nan_mode="constants", bytes_mode="base64")
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as e:
        raise UnstorableValue(reason_of(e)) from e
    if is_json(value):  # then there is no secret, no large float and no key that isn't text
        return checked(text, lambda: value)
    written = in_full(text, lambda: _ANYTHING.to_python(value))
    json.loads(written, object_pairs_hook=_without_repeats)
    return written


def checked(json_text: bytes, values: Callable[[], Any]) -> str:
    """The JSON text itself, once it is known that it can be stored and read again.

    `values` gives what was written as Python objects, should the text alone not tell.
    """
    text = json_text.decode()
    # Each test is a scan of memory, quicker in text than in bytes; only a hit costs a look at the values. A short text
    # can be neither deep nor long.
    if (
        "\\u0000" in text
        or "NaN" in text
        or "Infinity" in text
        or (len(text) > MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH)
        or (len(text) > MAX_DIGITS and _LONG_NUMBER.search(text))
    ):
        _refuse(json.loads(text, parse_int=_whole_number), _problem)
    # A Pydantic model writes NaN as null, by a setting of its own.
    if "null" in text:
        _refuse(values(), _problem_of_number)
    return text


def in_full(json_text: bytes, values: Callable[[], Any]) -> str:
    """`checked` for what no task function reads: secrets are refused, and large floats stay floats."""
    text = checked(json_text, values)
    if secrets.holds_one(text, values):
        raise UnstorableValue(
            "holds a secret, which is stored only as an argument that the task function declares as one: "
            "elsewhere it would be shown. Pass a reference to it, or its get_secret_value()"
        )
    return with_whole_floats(text)


def limited(text: str, limit: int, what: str) -> str:
    """The text, if it is no longer than `limit` bytes. `what` is the subject of the sentence, such as "the result"."""
    if len(text) > limit or (not text.isascii() and len(text.encode()) > limit):
        verb = "take" if what.endswith("s") else "takes"
        raise UnstorableValue(
            f"{what} {verb} {len(text.encode()):,} bytes as JSON; the limit is {limit:,} (max_payload_bytes). "
            "Store large data elsewhere and pass a reference to it"
        )
    return text


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


_LONG_NUMBER = re.compile(rf"[0-9]{{{MAX_DIGITS + 1}}}")
_ANYTHING = SchemaSerializer(core_schema.any_schema())


def _without_repeats(pairs: list[tuple[str, Any]]) -> None:
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

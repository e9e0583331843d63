"""What comes back when a value was stored as JSON and read again: known for plain types, tried for all others."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from functools import cached_property
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel, Secret, SecretBytes, SecretStr


class Fidelity(IntEnum):
    """How much is known about the values of a type before one is seen."""

    MUST_BE_TRIED = 0
    IF_JSON = 1
    """Values that are JSON themselves come back equal; others have to be tried."""
    ALWAYS = 2
    """Every value comes back equal."""


_ALWAYS = frozenset({str, int, bool, float, NoneType, date, UUID})
_IF_JSON = (Any, object, list, dict)


def fidelity(annotation: Any) -> Fidelity:
    """Properties of the values of this type. Pydantic has converted them to exactly this type when they are stored."""
    if annotation is None or (isinstance(annotation, type) and annotation in _ALWAYS):
        return Fidelity.ALWAYS
    if annotation in _IF_JSON:
        return Fidelity.IF_JSON
    inner = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is list:
            return fidelity(inner[0])
        case origin if origin is dict and inner[0] is str:
            return fidelity(inner[1])
        case origin if origin in (Union, UnionType):
            # JSON's null is nothing but None; between other members it can leave a doubt.
            others = [member for member in inner if member is not NoneType]
            return fidelity(others[0]) if len(others) == 1 else Fidelity.MUST_BE_TRIED
    return Fidelity.MUST_BE_TRIED


# Pydantic has written both 1e+16 and 1e16.
_EXPONENT = re.compile(r"[0-9]e\+?[0-9]")
_STRING_OR_EXPONENT = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?e\+?[0-9]+')


def with_whole_floats(text: str) -> str:
    """The JSON text with large floats written out, so that jsonb gives back a float: 1e16 as 10000000000000000.0."""
    if "e" not in text or not _EXPONENT.search(text):
        return text
    return _STRING_OR_EXPONENT.sub(lambda m: m[0] if m[0][0] == '"' else f"{Decimal(float(m[0])):f}.0", text)


def as_stored(text: str) -> str:
    """The JSON text as jsonb gives it back: keys in an order of its own, and each only once."""
    return json.dumps(json.loads(text, object_pairs_hook=_sorted_as_jsonb), ensure_ascii=False)


def _sorted_as_jsonb(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(sorted(dict(pairs).items(), key=lambda pair: (len(pair[0].encode()), pair[0].encode())))


class Difference(NamedTuple):
    """Where a value that was read again differs, e.g. "rows.3.price", and in what."""

    path: str
    reason: str


def difference(sent: Any, arrived: Any, *, exact: bool = True) -> Difference | None:
    """The first place at which the received value differs from the sent one, types included.

    Not `exact`: a bool may arrive as the int that it equals, an int as a float, and the like. No value is named, as it
    may be a secret.
    """
    return next(_differences(sent, arrived, (), exact), None)


def _differences(sent: Any, arrived: Any, path: tuple[str, ...], exact: bool) -> Iterator[Difference]:
    if _kind(sent) is not _kind(arrived):
        if exact or not _is_the_same_scalar(sent, arrived):
            yield _found(path, _other_type(sent, arrived))
        return
    for name, a, b, why in _parts(sent, arrived):
        if name is None:
            yield _found(path, why)
        else:
            yield from _differences(a, b, (*path, name), exact)


def _kind(value: Any) -> type:
    """The type of a value. A TaskId counts as the UUID that it is."""
    return UUID if isinstance(value, UUID) else type(value)


def _is_the_same_scalar(sent: Any, arrived: Any) -> bool:
    kind = type(arrived)
    return kind in (int, float, str) and (isinstance(sent, kind) or type(sent) is int) and bool(sent == arrived)


_Parts = Iterator[tuple[str | None, Any, Any, str]]
"""Name, sent value, received value; without a name: the reason why the two differ."""


def _parts(sent: Any, arrived: Any) -> _Parts:
    match sent:
        case BaseModel():
            yield from _attributes(type(sent).model_fields, sent, arrived)
            for kind in ("__pydantic_extra__", "__pydantic_private__"):
                yield from _items(getattr(sent, kind) or {}, getattr(arrived, kind) or {})
        case SecretStr() | SecretBytes() | Secret():
            yield from _parts(sent.get_secret_value(), arrived.get_secret_value())
        case Mapping():
            yield from _items(sent, arrived)
            if isinstance(sent, OrderedDict) and list(sent) != list(arrived):
                yield None, None, None, "is an OrderedDict, and jsonb doesn't keep the order. Use a list of pairs"
        case Set():
            if {(_kind(item), item) for item in sent} != {(_kind(item), item) for item in arrived}:
                yield None, None, None, "would arrive with other elements"
        case Sequence() if not isinstance(sent, str | bytes | bytearray | memoryview | range):
            if len(sent) != len(arrived):
                yield None, None, None, "would arrive with another length"
            for i, (a, b) in enumerate(zip(sent, arrived, strict=False)):
                yield str(i), a, b, ""
        case Enum():
            if sent is not arrived:
                yield None, None, None, "would arrive as another member"
        case datetime() | time():
            # Not `==`: of a moment that the clocks show twice, Python says that it equals none in another time zone.
            if (sent.replace(tzinfo=None), sent.utcoffset()) != (arrived.replace(tzinfo=None), arrived.utcoffset()):
                yield None, None, None, "would arrive as another moment: JSON has offsets of whole minutes only"
        case _ if dataclasses.is_dataclass(sent):
            # Not only its fields: it may keep constructor arguments elsewhere.
            names = dict.fromkeys([f.name for f in dataclasses.fields(sent)]) | getattr(sent, "__dict__", {})
            yield from _attributes([n for n in names if not _is_cached(sent, n)], sent, arrived)
        case _ if type(sent).__eq__ is object.__eq__ and hasattr(sent, "__dict__"):
            yield from _items(vars(sent), vars(arrived))
        case _ if not _equal(sent, arrived):
            yield None, None, None, "would arrive with another value"


def _attributes(names: Any, sent: Any, arrived: Any) -> _Parts:
    for name in names:
        a, b = getattr(sent, name, _MISSING), getattr(arrived, name, _MISSING)
        yield name, a, b, ""


def _is_cached(value: Any, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), cached_property)


def _items(sent: Mapping[Any, Any], arrived: Mapping[Any, Any]) -> _Parts:
    # With their types: 1 and True are one key to Python.
    keys = {(_kind(key), key): value for key, value in arrived.items()}
    for key, value in sent.items():
        if (_kind(key), key) not in keys:
            why = (
                f"has the key {str(key)[:50]!r}, which would be lost or changed: keys are text in JSON, each only once"
            )
            yield None, None, None, why
        yield str(key), value, keys.pop((_kind(key), key), _MISSING), ""
    if keys:
        yield None, None, None, "would arrive with an additional key"


def _equal(sent: Any, arrived: Any) -> bool:
    try:
        return bool(sent == arrived)
    except Exception:  # some types refuse to be compared: then nothing says that it arrives equal
        return False


def _other_type(sent: Any, arrived: Any) -> str:
    if arrived is _MISSING:
        return "would be lost: it is not part of the JSON"
    if sent is _MISSING:
        return "would arrive with a value that was not set"
    return (
        f"is {type(sent).__name__}, and would arrive as {type(arrived).__name__}: with the declared type, JSON can't "
        "distinguish them. Declare exactly that type, or convert the value first"
    )


def _found(path: tuple[str, ...], reason: str) -> Difference:
    return Difference(".".join(path), reason)


class _Missing:
    """Stands for what isn't there."""


_MISSING = _Missing()

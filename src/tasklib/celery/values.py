"""Values as Celery's JSON writes them: tuples become lists, and times, decimals, UUIDs and bytes are marked.

The marks are those of kombu 5.3 and newer, so that a message of Celery's can be submitted as it is.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

_KIND, _VALUE = "__type__", "__value__"
_WRITTEN: list[tuple[type, str, Callable[[Any], str]]] = [
    (datetime, "datetime", datetime.isoformat),  # before date: it is one, too
    (date, "date", date.isoformat),
    (time, "time", time.isoformat),
    (Decimal, "decimal", str),
    (UUID, "uuid", lambda value: value.hex),
]
_READ: dict[str, Callable[[str], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": lambda text: datetime.fromisoformat(text).date(),
    "time": time.fromisoformat,
    "decimal": Decimal,
    "uuid": lambda value: UUID(value) if isinstance(value, str) else UUID(hex=value["hex"]),
    "bytes": str.encode,
    "base64": lambda text: base64.b64decode(text.encode()),
}


def plain(value: Any) -> Any:
    """The value as JSON has it. TypeError if that can't be: nothing is pickled."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if hasattr(value, "__json__"):
        return plain(value.__json__())
    if isinstance(value, Mapping):
        return {_key(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return _bytes(value)
    for kind, mark, write in _WRITTEN:
        if isinstance(value, kind):
            return {_KIND: mark, _VALUE: write(value)}
    for basic in (str, bool, int, float):  # subclasses, such as members of a StrEnum
        if isinstance(value, basic):
            return basic(value)
    raise TypeError(
        f"Object of type {type(value).__name__} is not JSON serializable. Tasks are stored as JSON, and nothing is "
        "pickled: pass an id, or a dict of plain values."
    )


def revived(value: Any) -> Any:
    """What `plain` was given, but for tuples, which are lists."""
    if isinstance(value, list):
        return [revived(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_KIND, _VALUE} and (read := _READ.get(value[_KIND])):
        return read(value[_VALUE])
    return {name: revived(item) for name, item in value.items()}


def _key(name: Any) -> str:
    if isinstance(name, str):
        return str(name)
    if name is None or isinstance(name, bool):
        return {None: "null", True: "true", False: "false"}[name]
    if isinstance(name, int | float):
        return repr(name)
    raise TypeError(f"keys of a dict must be strings or numbers, not {type(name).__name__}.")


def _bytes(value: bytes) -> dict[str, str]:
    try:
        return {_KIND: "bytes", _VALUE: value.decode()}
    except UnicodeDecodeError:
        return {_KIND: "base64", _VALUE: base64.b64encode(value).decode()}

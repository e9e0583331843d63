"""Payloads in other forms than JSON: registered by content type for writing, and accepted one by one for reading.

In the table they are base64 in {"$as": {"type": "application/msgpack", "data": "..."}}. What can run code while it is
read, such as pickle, is refused by name and by its first bytes, and no setting allows it.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tasklib.errors import InvalidOption, InvalidTaskFunction, PayloadUnreadable
from tasklib.tasks.payload import Arguments, ResultCodec, result_as_declared
from tasklib.tasks.round_trip import difference
from tasklib.tasks.unstorable import UnstorableValue

MARK = "$as"
IN_TEXT = f'"{MARK}"'
_TYPE = re.compile(r"[a-z]+/[A-Za-z0-9][A-Za-z0-9.+_-]{0,100}")
_RUNS_CODE = re.compile(r"pickle|marshal|dill|shelve|joblib", re.IGNORECASE)
_PICKLE_PROTOCOLS = range(2, 6)


@dataclass(frozen=True, slots=True)
class Serializer:
    """Writes and reads payloads of one content type."""

    content_type: str
    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]


_registered: dict[str, Serializer] = {}
_accepted: set[str] = set()


def register_serializer(content_type: str, *, dumps: Callable[[Any], bytes], loads: Callable[[bytes], Any]) -> None:
    """Let task functions write their payloads in this form: `@task(serializer="application/msgpack")`.

    register_serializer("application/msgpack", dumps=msgpack.packb, loads=msgpack.unpackb)
    """
    if not isinstance(content_type, str) or not _TYPE.fullmatch(content_type) or content_type == "application/json":
        raise InvalidOption(f"a content type is a name such as 'application/msgpack', not {content_type!r}.")
    for name in (content_type, _path(dumps), _path(loads)):
        if _RUNS_CODE.search(name):
            raise InvalidOption(f"{name} can run code while it reads a payload, so none is written or read by it.")
    _registered[content_type] = Serializer(content_type, dumps, loads)


def _path(function: object) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"


def accept_content(content_type: str) -> None:
    """Let this program read payloads of this content type, which must be registered. Others are never read."""
    if content_type not in _registered:
        raise InvalidOption(
            f"{content_type!r} is not registered: register_serializer({content_type!r}, ...) comes first."
        )
    _accepted.add(content_type)


def accepted_capabilities() -> list[str]:
    """What a worker offers that reads these content types."""
    return [capability(content_type) for content_type in sorted(_accepted)]


def capability(content_type: str) -> str:
    """What a task with arguments of this content type requires of a worker."""
    return f"content:{content_type}"


def required_by(text: str) -> list[str]:
    """What stored arguments require of a worker for their content type."""
    found = json.loads(text).get(MARK)
    return [capability(found["type"])] if isinstance(found, dict) and isinstance(found.get("type"), str) else []


def serializer_of(content_type: object, name: str) -> Serializer:
    """The serializer that `@task(serializer=...)` names."""
    if not isinstance(content_type, str) or content_type not in _registered:
        raise InvalidTaskFunction(
            f"{name}: no serializer is registered for {content_type!r}. Call register_serializer({content_type!r}, "
            "dumps=..., loads=...) before the function is defined."
        )
    return _registered[content_type]


def packed(serializer: Serializer, value: Any) -> str:
    """The value as it is stored; UnstorableValue if its serializer can't write it."""
    try:
        data = serializer.dumps(value)
    except Exception as e:  # the program's own
        raise UnstorableValue(f"can't be written as {serializer.content_type}: {type(e).__name__}: {e}") from e
    if not isinstance(data, bytes):
        raise UnstorableValue(
            f"the serializer of {serializer.content_type} must return bytes, not {type(data).__name__}"
        )
    _refuse_code(data)
    return json.dumps({MARK: {"type": serializer.content_type, "data": b64encode(data).decode()}})


def is_packed(value: Any) -> bool:
    """True for a stored value of another content type than JSON."""
    return isinstance(value, dict) and value.keys() == {MARK} and isinstance(value[MARK], dict)


def unpacked(value: Mapping[str, Any]) -> Any:
    """What was stored; PayloadUnreadable if this program doesn't read this content type."""
    content_type, data = value[MARK].get("type"), value[MARK].get("data")
    if content_type not in _accepted:
        raise PayloadUnreadable(
            f"the payload is {content_type!r}, which this program doesn't accept: register_serializer(...) and "
            "accept_content(...) allow it."
        )
    try:
        raw = b64decode(data, validate=True)
        _refuse_code(raw)
        return _registered[content_type].loads(raw)
    except (NotBase64, TypeError, UnstorableValue) as e:
        raise PayloadUnreadable(f"the payload is no {content_type}: {e}") from None


def _refuse_code(data: bytes) -> None:
    """Pickle and marshal, whatever they are called."""
    if _is_pickle(data) or _is_marshal(data):
        kind = "pickle" if _is_pickle(data) else "marshal"
        raise UnstorableValue(f"begins like {kind}, which can run code while it is read")


def _is_pickle(data: bytes) -> bool:
    if not data.endswith(b"."):
        return False
    if data[:1] == b"\x80":
        return len(data) > 2 and data[1] in _PICKLE_PROTOCOLS
    return data.startswith((b"}q", b"]q")) or (b"\n" in data and data.startswith((b"(d", b"(l", b"(i", b"(t", b"c")))


def _is_marshal(data: bytes) -> bool:
    """A dictionary, a list, or code. The highest bit of a type is a flag."""
    if len(data) < 2:
        return False
    kind, following = data[0] & 0x7F, data[1] & 0x7F
    is_mapping = kind == ord("{") and following in b"zZuUaAtT0"
    is_list = kind == ord("[") and data[1] != 0 and data[3:5] == b"\0\0"
    return is_mapping or is_list or (data[0] == ord("c") | 0x80 and len(data) > 10)


class SerializedArguments(Arguments):
    """Reads and writes the arguments of one function by its serializer. JSON is read too: that of older tasks."""

    serializer: Serializer

    def to_json(self, kwargs: Mapping[str, Any]) -> str:
        try:
            values = self._adapter.validator.validate_python(dict(kwargs))
        except ValidationError as e:
            raise self._refusal(e) from None
        try:
            text = packed(self.serializer, self._writer.to_python(values, round_trip=True, warnings=False))
            back = self._typed(self.serializer.loads(b64decode(json.loads(text)[MARK]["data"])))
        except UnstorableValue as e:
            raise self._unstorable(e.path, e.reason) from e
        if found := difference(values, back):
            raise self._unstorable(found.path, found.reason)
        return text

    def from_json(self, text: str) -> dict[str, Any]:
        value = json.loads(text)
        own = value.pop(MARK, None)
        if own is None:
            return super().from_json(text)
        return self._typed({**unpacked({MARK: own}), **value})

    def _typed(self, values: Any) -> dict[str, Any]:
        try:
            typed: dict[str, Any] = self._adapter.validator.validate_python(values, by_name=True)
        except ValidationError as e:
            raise self._refusal(e) from None
        return typed


class SerializedResults(ResultCodec):
    """Writes the return values of one function by its serializer."""

    serializer: Serializer

    def to_json(self, value: Any) -> str:
        if value is None:
            return "null"
        plain = value if self._writer is None else self._writer.to_python(value, round_trip=True, warnings=False)
        return packed(self.serializer, plain)

    def from_json(self, value: Any) -> Any:
        return result_as_declared(self, unpacked(value)) if is_packed(value) else super().from_json(value)


def refuse_with_serializer(function: Any, by_argument: Mapping[str, object]) -> None:
    """What a function with a serializer can't have, because it needs single arguments in the table."""
    for setting, value in by_argument.items():
        if value:
            raise InvalidTaskFunction(
                f"{function.name}: serializer={function.arguments.serializer.content_type!r} excludes {setting}, which "
                "reads single arguments from the table."
            )

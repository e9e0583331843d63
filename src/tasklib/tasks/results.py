"""What a task function returns, as JSON: if it declares a type, then such that this type reads back the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import (
    ConfigDict,
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticSerializationError, SchemaSerializer

from tasklib.tasks.arguments import WRITTEN
from tasklib.tasks.payload import UnstorableValue, dump, in_full, reason_of
from tasklib.tasks.round_trip import Fidelity, as_stored, difference, fidelity

_UNDECLARED = (Any, object)


class ResultCodec:
    """Writes the return values of one function as JSON, and reads them.

    Without a declared type, with one that Pydantic doesn't know, and where it says `Any`, a value is stored in the form
    that JSON has for it: an attempt that has done its work doesn't fail because of that.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        declared = get_type_hints(function, include_extras=True).get("return", Any)
        self._declared = declared
        self._fidelity = fidelity(declared)
        self._adapter = None if declared in _UNDECLARED else _adapter(declared)
        self._writer = None if self._adapter is None else SchemaSerializer(self._adapter.core_schema, WRITTEN)

    def to_json(self, value: Any) -> str:
        """The value as checked JSON text; UnstorableValue says why it can't be stored."""
        if value is None:
            return "null"
        if self._adapter is None or self._writer is None:
            return dump(value)
        # Where a type such as dict[str, Any] leaves it open, anything goes that would without a type.
        is_known = self._fidelity is not Fidelity.MUST_BE_TRIED
        if is_known and (
            type(value) is self._declared or self._adapter.validator.isinstance_python(value, strict=True)
        ):
            return dump(value)
        return self._tried(value, self._adapter, self._writer)

    def from_json(self, value: Any) -> Any:
        """A stored result in the type that the function declares; ValueError if it doesn't fit."""
        if value is None or self._adapter is None:
            return value
        if type(value) is self._declared:
            return value
        try:
            return self._adapter.validator.validate_json(json.dumps(value), by_name=True)
        except ValidationError as e:
            detail = e.errors(include_url=False, include_input=False)[0]
            raise ValueError(f"{_place(detail)}: {detail['msg']}".removeprefix(": ")) from None

    def _tried(self, value: Any, adapter: TypeAdapter[Any], writer: SchemaSerializer) -> str:
        try:
            written = writer.to_json(value, round_trip=True, warnings=False)
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as e:
            raise UnstorableValue(reason_of(e)) from e
        text = in_full(written, lambda: writer.to_python(value, warnings=False))
        try:
            back = adapter.validator.validate_json(as_stored(text), by_name=True)
        except ValidationError as e:
            detail = e.errors(include_url=False, include_input=False)[0]
            raise UnstorableValue(f"it is not what the function declares: {detail['msg']}", _place(detail)) from None
        if found := difference(value, back, exact=False):
            raise UnstorableValue(found.reason, found.path)
        return text


def _adapter(declared: Any) -> TypeAdapter[Any] | None:
    try:
        return TypeAdapter(declared, config=ConfigDict(val_json_bytes="base64"))
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation):
        return None
    except PydanticUserError:  # a type with a configuration of its own takes no other
        try:
            return TypeAdapter(declared)
        except PydanticUserError:
            return None


def _place(detail: Mapping[str, Any]) -> str:
    return ".".join(map(str, detail["loc"]))

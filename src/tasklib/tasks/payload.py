"""Arguments and results as JSON that PostgreSQL can store and every worker can read; the rest is refused here.

Arguments are checked against the function's type hints when they are submitted, and typed again when it runs.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import CoreConfig, PydanticSerializationError, SchemaSerializer, core_schema, to_json

from tasklib.config import Config
from tasklib.errors import InvalidOption, TaskExecutionError
from tasklib.tasks import secrets
from tasklib.tasks.dependencies import providers_of
from tasklib.tasks.marks import marked_parameters
from tasklib.tasks.options import OPTION_NAMES, RESERVED_NAMES, did_you_mean
from tasklib.tasks.round_trip import Difference, Fidelity, as_stored, difference, fidelity, with_whole_floats
from tasklib.tasks.signature import CONNECTION, arguments_adapter, hints_of, others_of, parameters_of, result_adapter
from tasklib.tasks.unstorable import (
    MAX_DEPTH,
    MAX_DIGITS,
    UnstorableValue,
    reason_of,
    refuse_in_text,
    refuse_numbers,
    without_repeats,
)

_EMPTY = "{}"
# A TypedDict's own configuration doesn't reach the values in it when they are written.
_WRITTEN = CoreConfig(ser_json_inf_nan="constants", ser_json_bytes="base64")
_UNDECLARED = (Any, object)
_LONG_NUMBER = re.compile(rf"[0-9]{{{MAX_DIGITS + 1}}}")
_ANYTHING = SchemaSerializer(core_schema.any_schema())
_WHOLE_FLOATS_FROM = 1e16
"""From here on floats are written with an exponent, and jsonb writes that out as a whole number."""


class Arguments:
    """Reads and writes the arguments of one function as JSON."""

    def __init__(self, function: Callable[..., Any], task_name: str, *, with_connection: bool) -> None:
        self.task_name = task_name
        hints = self.hints = hints_of(function, task_name)
        self.providers = providers_of(function, hints, task_name)
        """The parameters that are no arguments, because the worker provides them."""
        self.signature = _without(inspect.signature(function), self.providers)
        injected = {CONNECTION} if with_connection else set()
        self.parameters = parameters_of(self.signature, task_name, injected)
        self._others = others_of(self.signature)
        others = None if self._others is None else hints.get(self._others, Any)
        self._fidelity = min(map(fidelity, [*(hints.get(name, Any) for name in self.parameters), others]))
        self._is_plain = self._fidelity is Fidelity.ALWAYS
        self._adapter = arguments_adapter(hints, self.parameters, task_name, others)
        self._writer = SchemaSerializer(self._adapter.core_schema, _WRITTEN)
        self._hidden = marked_parameters(hints, secrets.HIDDEN)
        self._is_final = self._is_plain and not self._hidden
        self._partial: dict[frozenset[str], Arguments] = {}

    def without(self, later: frozenset[str]) -> Arguments:
        """The same for a submission that leaves some parameters out: in a flow they come later."""
        if not later:
            return self
        if later not in self._partial:
            part = self._partial[later] = copy(self)
            others = None if self._others is None else self.hints.get(self._others, Any)
            part.parameters = {name: p for name, p in self.parameters.items() if name not in later}
            part._adapter = arguments_adapter(self.hints, part.parameters, self.task_name, others)
            part._writer = SchemaSerializer(part._adapter.core_schema, _WRITTEN)
        return self._partial[later]

    def to_json(self, kwargs: Mapping[str, Any]) -> str:
        """Check the arguments of a submission and write them as JSON, such that the function receives them equal."""
        if not kwargs and not self.parameters:
            return _EMPTY
        try:
            # Straight to the core: the adapter's own method only hands on its defaults.
            values = self._adapter.validator.validate_python(kwargs if type(kwargs) is dict else dict(kwargs))
        except ValidationError as e:
            raise self._refusal(e) from None
        try:
            written = self._writer.to_json(values) if self._is_plain else self._written(values)
            text = checked(written, lambda: self._writer.to_python(values, warnings=False))
        except UnstorableValue as e:
            raise self._unstorable(e.path, e.reason) from e
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as e:
            raise self._unserialisable(values, e) from e
        if self._is_final:
            return text
        if not self._is_plain and not (self._fidelity is Fidelity.IF_JSON and is_json(values)):
            text = self._tried(text, values)
        return secrets.with_marks(text, self._hidden) if self._hidden else text

    def from_json(self, text: str) -> dict[str, Any]:
        """The typed arguments of a stored task."""
        if text == _EMPTY and not self.parameters:
            return {}
        if self._fidelity is Fidelity.MUST_BE_TRIED or self._hidden:
            text = secrets.without_marks(text)
        arguments: dict[str, Any]
        try:
            if self._is_plain:
                arguments = self._adapter.validator.validate_json(text)
            else:
                # By name: models are written by the names of their fields, whatever aliases they have.
                arguments = self._adapter.validator.validate_json(text, by_name=True)
            return arguments
        except ValidationError as e:
            raise self._refusal(e) from None

    def _written(self, values: Mapping[str, Any]) -> bytes:
        # Without what is computed from the rest, which a model may refuse to read. What Pydantic would warn of, such
        # as the lost fields of a subclass, is found by trying.
        return self._writer.to_json(values, round_trip=True, warnings=False)

    def _tried(self, text: str, values: Mapping[str, Any]) -> str:
        """The text by which the arguments arrive equal; refused if there is none."""
        texts: Iterable[str] = (text,)
        if secrets.may_be_in(text):
            texts = secrets.with_values(text, self._writer.to_python(values, round_trip=True, warnings=False))
        found = Difference("", "can't be read back from JSON")
        for text in map(with_whole_floats, texts):
            another = self._difference(text, values)
            if another is None:
                return text
            found = another
        raise self._unstorable(found.path, found.reason)

    def _difference(self, text: str, values: Mapping[str, Any]) -> Difference | None:
        try:
            return difference(values, self.from_json(as_stored(text)))
        except TaskExecutionError as e:
            return Difference(e.field or "", f"can't be read back from JSON ({e})")

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Positional arguments by their names."""
        if not args:
            return dict(kwargs)
        try:
            bound = self.signature.bind_partial(*args, **kwargs).arguments
        except TypeError as e:
            raise TaskExecutionError(f"{self.task_name}: {e}.", task=self.task_name) from None
        if self._others is not None:
            bound.update(bound.pop(self._others, {}))
        return dict(bound)

    def _refusal(self, error: ValidationError) -> TaskExecutionError:
        problems = []
        for detail in error.errors(include_url=False, include_input=False):
            place = ".".join(str(part) for part in detail["loc"]) or "arguments"
            message = {
                "missing": "is missing",
                "extra_forbidden": f"is not a parameter of {self.task_name}",
            }.get(detail["type"], detail["msg"])
            if detail["type"] == "extra_forbidden" and place in OPTION_NAMES:
                message += f"; as an option it goes before: .options({place}=...).submit(...)"
            elif detail["type"] == "extra_forbidden":
                message += f".{near}" if (near := did_you_mean(place, {*self.parameters, *OPTION_NAMES})) else ""
            if detail["type"] == "missing" and place in RESERVED_NAMES:
                message += f" (submit_task has a keyword of that name: pass arguments as kwargs={{'{place}': ...}})"
            problems.append((place, message))
        text = "; ".join(f"{place}: {message}" for place, message in problems)
        return TaskExecutionError(
            f"the arguments don't fit {self.task_name}: {text}", task=self.task_name, field=problems[0][0].split(".")[0]
        )

    def _unstorable(self, path: str, reason: str) -> TaskExecutionError:
        return TaskExecutionError(
            f"the arguments of {self.task_name} can't be stored: {path or 'arguments'}: {reason}",
            task=self.task_name,
            field=path.split(".")[0] or None,
        )

    def _unserialisable(self, values: Mapping[str, Any], error: Exception) -> TaskExecutionError:
        # Pydantic doesn't say which argument it stumbled over: find it.
        for name, value in values.items():
            try:
                self._written({name: value})
            except (PydanticSerializationError, ValueError, TypeError, RecursionError) as e:
                return self._unstorable(name, reason_of(e))
        return self._unstorable("", reason_of(error))


class ResultCodec:
    """Writes the return values of one function as JSON, and reads them.

    Without a declared type, with one that Pydantic doesn't know, and where it says `Any`, a value is stored in the form
    that JSON has for it: an attempt that has done its work doesn't fail because of that.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        declared = get_type_hints(function, include_extras=True).get("return", Any)
        self._declared = self.declared = declared
        self._fidelity = fidelity(declared)
        self._adapter = None if declared in _UNDECLARED else result_adapter(declared)
        self._writer = None if self._adapter is None else SchemaSerializer(self._adapter.core_schema, _WRITTEN)
        # Where a type such as dict[str, Any] leaves it open, anything goes that would without a type.
        self._is_known = self._fidelity is not Fidelity.MUST_BE_TRIED

    def to_json(self, value: Any) -> str:
        """The value as checked JSON text; UnstorableValue says why it can't be stored."""
        if value is None:
            return "null"
        if self._adapter is None or self._writer is None:
            return dump(value)
        if self._is_known and (
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


def result_as_declared(codec: ResultCodec, value: Any) -> Any:
    """A value that is not JSON in the type that the function declares; ValueError if it doesn't fit."""
    if value is None or codec._adapter is None:
        return value
    try:
        return codec._adapter.validator.validate_python(value, by_name=True)
    except ValidationError as e:
        detail = e.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{_place(detail)}: {detail['msg']}".removeprefix(": ")) from None


def _without(signature: inspect.Signature, names: Iterable[str]) -> inspect.Signature:
    left = [parameter for name, parameter in signature.parameters.items() if name not in names]
    return signature if len(left) == len(signature.parameters) else signature.replace(parameters=left)


def dump(value: Any) -> str:
    """Any value Pydantic can serialise, as checked JSON text."""
    try:
        text = to_json(value, inf_nan_mode="constants", bytes_mode="base64")
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as e:
        raise UnstorableValue(reason_of(e)) from e
    if is_json(value):  # then there is no secret, no large float and no key that isn't text
        return checked(text, lambda: value)
    written = in_full(text, lambda: _ANYTHING.to_python(value))
    json.loads(written, object_pairs_hook=without_repeats)
    return written


def is_json(value: Any) -> bool:
    """True for what JSON has, exactly: it comes back equal if nothing else is expected."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return True
    if kind is float:
        return bool(abs(value) < _WHOLE_FLOATS_FROM)
    if kind is list:
        return all(map(is_json, value))
    if kind is dict:
        return all([type(key) is str and is_json(item) for key, item in value.items()])
    return False


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
        refuse_in_text(text)
    # A Pydantic model writes NaN as null, by a setting of its own.
    if "null" in text:
        refuse_numbers(values())
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


def json_option(name: str, value: Mapping[str, Any], config: Config) -> str:
    """A mapping option as JSON text."""
    try:
        text = dump(dict(value))
    except UnstorableValue as e:
        place = f"{name}.{e.path}" if e.path else name
        raise InvalidOption(f"{place} {e.reason}.") from e
    try:
        return limited(text, config.max_payload_bytes, name)
    except UnstorableValue as e:
        raise InvalidOption(f"{e.reason}.") from e


def _place(detail: Mapping[str, Any]) -> str:
    return ".".join(map(str, detail["loc"]))

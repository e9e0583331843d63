"""The arguments of a task function: checked against its type hints when submitted, typed again when it runs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, NotRequired, get_origin, get_type_hints

from pydantic import (
    ConfigDict,
    GetCoreSchemaHandler,
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreConfig, CoreSchema, PydanticSerializationError, SchemaSerializer
from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12

from tasklib.errors import InvalidTaskFunction, TaskExecutionError
from tasklib.tasks import secrets
from tasklib.tasks.options import OPTION_NAMES, RESERVED_NAMES, did_you_mean
from tasklib.tasks.payload import UnstorableValue, checked, reason_of
from tasklib.tasks.round_trip import Difference, Fidelity, as_stored, difference, fidelity, is_json, with_whole_floats

CONNECTION = "connection"
"""The parameter through which a transactional task receives its connection."""

_EMPTY = "{}"
# A TypedDict's own configuration doesn't reach the values in it when they are written.
WRITTEN = CoreConfig(ser_json_inf_nan="constants", ser_json_bytes="base64")


class Arguments:
    """Reads and writes the arguments of one function as JSON."""

    def __init__(self, function: Callable[..., Any], task_name: str, *, with_connection: bool) -> None:
        self.task_name = task_name
        self.signature = inspect.signature(function)
        injected = {CONNECTION} if with_connection else set()
        self.parameters = _parameters(self.signature, task_name, injected)
        hints = _hints(function, task_name)
        others = next((hints.get(p.name, Any) for p in self.signature.parameters.values() if _is_open(p)), None)
        self._fidelity = min(map(fidelity, [*(hints.get(name, Any) for name in self.parameters), others]))
        self._is_plain = self._fidelity is Fidelity.ALWAYS
        self._adapter = _adapter(hints, self.parameters, task_name, others)
        self._writer = SchemaSerializer(self._adapter.core_schema, WRITTEN)

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
        if self._is_plain or (self._fidelity is Fidelity.IF_JSON and is_json(values)):
            return text
        return self._tried(text, values)

    def from_json(self, text: str) -> dict[str, Any]:
        """The typed arguments of a stored task."""
        if text == _EMPTY and not self.parameters:
            return {}
        if self._fidelity is Fidelity.MUST_BE_TRIED:
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
        for p in self.signature.parameters.values():
            if _is_open(p):
                bound.update(bound.pop(p.name, {}))
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


def asks_for_connection(function: Callable[..., Any]) -> bool:
    """True for a function whose parameter `connection` is declared as one of psycopg's connections."""
    psycopg = sys.modules.get("psycopg")  # importing it takes as long as all the rest: nobody has its types without it
    if psycopg is None or CONNECTION not in getattr(function, "__annotations__", ()):
        return False
    try:
        hint = get_type_hints(function).get(CONNECTION)
    except (NameError, TypeError, AttributeError, SyntaxError):  # said where the arguments are read
        return False
    kind = get_origin(hint) or hint
    return isinstance(kind, type) and issubclass(kind, psycopg.Connection | psycopg.AsyncConnection)


def _parameters(signature: inspect.Signature, task_name: str, injected: set[str]) -> dict[str, inspect.Parameter]:
    parameters = {}
    for p in signature.parameters.values():
        if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL):
            raise InvalidTaskFunction(
                f"{task_name} has the positional parameter {p}; tasks receive their arguments by name. "
                "Make it an ordinary or keyword parameter."
            )
        if p.kind is not p.VAR_KEYWORD and p.name not in injected:
            parameters[p.name] = p
    if injected and CONNECTION not in signature.parameters:
        raise InvalidTaskFunction(
            f"{task_name} is transactional, so it needs a parameter named {CONNECTION} to receive the connection."
        )
    return parameters


def _is_open(parameter: inspect.Parameter) -> bool:
    return parameter.kind is parameter.VAR_KEYWORD


def _hints(function: Callable[..., Any], task_name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as e:
        raise InvalidTaskFunction(
            f"the type hints of {task_name} can't be resolved: {e}. Task functions need hints that exist at run time, "
            "not only under TYPE_CHECKING."
        ) from e


def _adapter(
    hints: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter], task_name: str, others: Any
) -> TypeAdapter[dict[str, Any]]:
    """Reads the arguments; those beyond the parameters by the type `others`, or not if that is None."""
    # A parameter with a default stays out of the row when it isn't given: the default of the day it runs applies.
    fields = {
        name: hints.get(name, Any) if p.default is p.empty else NotRequired[hints.get(name, Any)]
        for name, p in parameters.items()
    }
    # With fields that exist only at run time, a type checker can't follow.
    make: Any = TypedDict
    annotated: Any = Annotated
    shape = make(f"{task_name}_arguments", fields)
    shape.__pydantic_config__ = ConfigDict(extra="forbid" if others is None else "allow", val_json_bytes="base64")
    try:
        return TypeAdapter(shape if others is None else annotated[shape, _Others(others)])
    except (PydanticSchemaGenerationError, PydanticUserError, PydanticUndefinedAnnotation) as e:
        raise InvalidTaskFunction(
            f"a parameter of {task_name} has a type that can't travel as JSON: {str(e).splitlines()[0]}"
        ) from e


class _Others:
    """The type of the values of `**others`, for a TypedDict."""

    def __init__(self, hint: Any) -> None:
        self._hint = hint

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        fields: Any = handler.resolve_ref_schema(schema)
        fields["extras_schema"] = handler.generate_schema(self._hint)
        return schema

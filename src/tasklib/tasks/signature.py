"""What a task function's signature says of its arguments and its result, as Pydantic reads it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NotRequired, get_origin, get_type_hints

from pydantic import (
    ConfigDict,
    GetCoreSchemaHandler,
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    TypeAdapter,
)
from pydantic_core import CoreSchema
from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12

from tasklib.errors import InvalidTaskFunction

CONNECTION = "connection"
"""The parameter through which a transactional task receives its connection."""


def asks_for_connection(function: Callable[..., Any]) -> bool:
    """True for a function whose parameter `connection` is declared as one of psycopg's connections."""
    psycopg = sys.modules.get("psycopg")  # a hint of one of its types implies that it is imported
    if psycopg is None or CONNECTION not in getattr(function, "__annotations__", ()):
        return False
    try:
        hint = get_type_hints(function).get(CONNECTION)
    except (NameError, TypeError, AttributeError, SyntaxError):  # said where the arguments are read
        return False
    kind = get_origin(hint) or hint
    return isinstance(kind, type) and issubclass(kind, psycopg.Connection | psycopg.AsyncConnection)


def parameters_of(signature: inspect.Signature, task_name: str, injected: set[str]) -> dict[str, inspect.Parameter]:
    parameters = {}
    for p in signature.parameters.values():
        if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL):
            raise InvalidTaskFunction(
                f"{task_name} has the positional parameter {p}; tasks receive their arguments by name. "
                "Make it an ordinary or keyword parameter."
            )
        if p.kind is not p.VAR_KEYWORD and p.name not in injected:
            parameters[p.name] = p
    if CONNECTION in injected and CONNECTION not in signature.parameters:
        raise InvalidTaskFunction(
            f"{task_name} is transactional, so it needs a parameter named {CONNECTION} to receive the connection."
        )
    return parameters


def others_of(signature: inspect.Signature) -> str | None:
    """The name of its `**others`, if it has them."""
    return next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), None)


def hints_of(function: Callable[..., Any], task_name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as e:
        raise InvalidTaskFunction(
            f"the type hints of {task_name} can't be resolved: {e}. Task functions need hints that exist at run time, "
            "not only under TYPE_CHECKING."
        ) from e


def arguments_adapter(
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


def result_adapter(declared: Any) -> TypeAdapter[Any] | None:
    try:
        return TypeAdapter(declared, config=ConfigDict(val_json_bytes="base64"))
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation):
        return None
    except PydanticUserError:  # a type with a configuration of its own takes no other
        try:
            return TypeAdapter(declared)
        except PydanticUserError:
            return None

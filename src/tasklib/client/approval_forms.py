"""The form of an approval, from its JSON Schema: the fields that people fill in, and what is checked of them.

Every field is shown by its kind. A kind that no input of a page fits, such as a list, is filled in as JSON. What the
schema can't say, a validator of the model for example, is checked by the task itself, which asks again then.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal

from tasklib.errors import InvalidOption
from tasklib.store.approvals import OpenApproval

Kind = Literal["text", "integer", "number", "boolean", "choice", "date", "datetime", "json"]
_KINDS: Mapping[str, Kind] = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
_FORMATS: Mapping[str, Kind] = {"date": "date", "date-time": "datetime"}
_BOUNDS: Mapping[str, tuple[str, Callable[[float, float], bool]]] = {
    "minimum": ("at least", operator.ge),
    "maximum": ("at most", operator.le),
    "exclusiveMinimum": ("more than", operator.gt),
    "exclusiveMaximum": ("less than", operator.lt),
}
_LONG_TEXT = 200


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of the form."""

    name: str
    title: str
    hint: str
    kind: Kind
    is_required: bool
    is_nullable: bool
    default: Any
    choices: tuple[Any, ...]
    schema: Mapping[str, Any]

    @property
    def is_long(self) -> bool:
        """Whether a text is likely to have several lines."""
        return self.kind == "text" and int(self.schema.get("maxLength", 0)) > _LONG_TEXT

    def limit(self, *names: str) -> Any:
        """The first of these keywords that the schema has."""
        return next((self.schema[name] for name in names if name in self.schema), None)


def fields_of(schema: Mapping[str, Any] | None) -> list[FormField]:
    """The fields of a form, in their order."""
    if schema is None:
        return []
    required, definitions = set(schema.get("required", ())), schema.get("$defs", {})
    return [_field(name, part, definitions, name in required) for name, part in schema.get("properties", {}).items()]


def checked_values(approval: OpenApproval, values: Any) -> dict[str, Any]:
    """The filled-in values, if they fit the form; else InvalidOption with the error of each field."""
    if not isinstance(values, dict):
        raise InvalidOption(f"the form of {approval.name!r} is filled in as an object of its fields.")
    fields = {field.name: field for field in fields_of(approval.form)}
    wrong = [f"{name}: there is no such field" for name in values if name not in fields]
    wrong += [f"{name}: missing" for name, field in fields.items() if field.is_required and name not in values]
    for name, field in fields.items():
        if name in values and (said := _wrong(field, values[name])):
            wrong.append(f"{name}: {said}")
    if wrong:
        raise InvalidOption(f"the form of {approval.name!r} is not filled in right: {'; '.join(wrong)}.")
    return values


def read_texts(fields: list[FormField], texts: Mapping[str, str]) -> dict[str, Any]:
    """Values from what was typed, by field. A field that was left empty is left out, unless an empty text is one."""
    return {field.name: value for field in fields if (value := _read(field, texts.get(field.name))) is not _NOTHING}


_NOTHING = object()


def _read(field: FormField, text: str | None) -> Any:
    if field.kind == "boolean" and not field.is_nullable:
        return text in ("true", "on", "yes", "1")
    if text is None or (not text.strip() and (field.kind != "text" or not field.is_required or field.is_nullable)):
        return _NOTHING
    match field.kind:
        case "text":
            return text.replace("\r\n", "\n")
        case "date":
            return text.strip()
        case "datetime":
            return text.strip()
        case "choice":
            return next((choice for choice in field.choices if _text(choice) == text), text)
        case "boolean":
            return {"true": True, "false": False}.get(text.strip().lower(), text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _field(name: str, part: Mapping[str, Any], definitions: Mapping[str, Any], is_required: bool) -> FormField:
    schema, is_nullable = _resolved(part, definitions)
    choices = tuple(schema.get("enum", ())) or ((schema["const"],) if "const" in schema else ())
    kind: Kind = "choice" if choices else _KINDS.get(str(schema.get("type")), "json")
    if kind == "text":
        kind = _FORMATS.get(str(schema.get("format")), kind)
    return FormField(
        name,
        str(schema.get("title") or name),
        str(schema.get("description") or ""),
        kind,
        is_required,
        is_nullable,
        schema.get("default"),
        choices,
        schema,
    )


def _resolved(part: Mapping[str, Any], definitions: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """A field's schema without references, and whether it may be null."""
    schema, is_nullable = dict(part), False
    for _ in range(10):  # references to references
        if reference := schema.pop("$ref", None):
            schema = {**definitions.get(str(reference).rpartition("/")[2], {}), **schema}
        elif len(options := [o for o in schema.get("anyOf", ()) if o.get("type") != "null"]) == 1:
            is_nullable = is_nullable or len(schema["anyOf"]) > 1
            schema = {**options[0], **{k: v for k, v in schema.items() if k != "anyOf"}}
        elif len(parts := schema.get("allOf", ())) == 1:
            schema = {**parts[0], **{k: v for k, v in schema.items() if k != "allOf"}}
        else:
            break
    return schema, is_nullable


def _wrong(field: FormField, value: Any) -> str | None:
    """The error of a value by the schema; None if it fits."""
    if value is None and field.is_nullable:
        return None
    match field.kind:
        case "choice":
            allowed = ", ".join(_text(choice) for choice in field.choices)
            return None if any(value == c and type(value) is type(c) for c in field.choices) else f"one of {allowed}"
        case "boolean":
            return None if isinstance(value, bool) else "true or false"
        case "integer" | "number":
            return _wrong_number(field, value)
        case "text":
            return _wrong_text(field, value)
        case "date":
            return None if _parses(date.fromisoformat, value) else "a day such as 2026-12-31"
        case "datetime":
            return None if _parses(datetime.fromisoformat, value) else "a time such as 2026-12-31T14:30:00Z"
    return None


def _wrong_number(field: FormField, value: Any) -> str | None:
    wanted = "a whole number" if field.kind == "integer" else "a number"
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not isinstance(value, int | float) or (field.kind == "integer" and not is_whole):
        return wanted
    if not math.isfinite(value):
        return wanted
    for keyword, (words, fits) in _BOUNDS.items():
        if (bound := field.schema.get(keyword)) is not None and not fits(value, bound):
            return f"{words} {bound}"
    return None


def _wrong_text(field: FormField, value: Any) -> str | None:
    if not isinstance(value, str):
        return "a text"
    if len(value) < (least := field.schema.get("minLength", 0)):
        return f"at least {least} characters" if least > 1 else "missing"
    if (most := field.schema.get("maxLength")) is not None and len(value) > most:
        return f"at most {most} characters"
    if (pattern := field.schema.get("pattern")) is not None and not _matches(pattern, value):
        return f"must match {pattern}"
    return None


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:  # written for another engine: the task itself checks it
        return True


def _parses(parse: Any, value: Any) -> bool:
    try:
        parse(value)
    except (TypeError, ValueError):
        return False
    return True


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)

"""Forms of approvals: which fields a schema has, and what is checked of what was filled in."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Annotated, Any, Literal
from uuid import uuid4

import pytest
from pydantic import BaseModel, Field

from tasklib.client.approval_forms import checked_values, fields_of, read_texts
from tasklib.errors import InvalidOption
from tasklib.store.approvals import OpenApproval
from tasklib.tasks.approvals import schema_of


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Everything(BaseModel):
    text: str
    code: Annotated[str, Field(pattern="^[A-Z]{2}$")] = "DE"
    number: int = 1
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    sure: bool = False
    maybe: bool | None = None
    color: Color = Color.RED
    size: Literal["s", "m", 3] | None = None
    day: dt.date = dt.date(2026, 1, 1)
    at: dt.datetime | None = None
    lines: list[int] = []
    wide: int | str = 1


FIELDS = fields_of(schema_of(Everything))


def approval(form: Any) -> OpenApproval:
    now = dt.datetime.now(dt.UTC)
    return OpenApproval(uuid4(), "t", "q", "x", 1, now, "X?", None, "approver", form, None, None)


def test_every_type_has_its_kind_of_field() -> None:
    kinds = {field.name: field.kind for field in FIELDS}
    assert kinds == {
        "text": "text", "code": "text", "number": "integer", "share": "number", "sure": "boolean", "maybe": "boolean",
        "color": "choice", "size": "choice", "day": "date", "at": "datetime", "lines": "json", "wide": "json",
    }  # fmt: skip
    assert {field.name for field in FIELDS if field.is_nullable} == {"maybe", "size", "at"}
    assert [field.name for field in FIELDS if field.is_required] == ["text"]


def test_what_was_typed_becomes_values_that_the_model_takes() -> None:
    typed = {
        "text": "a\r\nb", "code": "FR", "number": "7", "share": "0.25", "sure": "on", "maybe": "false", "color": "blue",
        "size": "3", "day": "2026-12-31", "at": "2026-12-31T14:30:00Z", "lines": "[1, 2]", "wide": "x",
    }  # fmt: skip
    values = checked_values(approval(schema_of(Everything)), read_texts(FIELDS, typed))
    made = Everything.model_validate(values)
    assert (made.text, made.share, made.sure, made.maybe, made.color) == ("a\nb", 0.25, True, False, Color.BLUE)
    assert (made.size, made.lines, made.wide) == (3, [1, 2], "x")
    assert made.day == dt.date(2026, 12, 31)


def test_a_field_left_empty_has_its_default() -> None:
    typed = {"text": "a", "number": "", "share": " ", "maybe": "", "size": "", "at": "", "lines": ""}
    assert read_texts(FIELDS, typed) == {"text": "a", "sure": False}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("text", 5, "a text"), ("text", None, "a text"), ("code", "xx", "must match"),
        ("number", 1.5, "a whole number"),
        ("number", True, "a whole number"), ("number", "1", "a whole number"), ("share", 1, "less than 1"),
        ("share", 0, "more than 0"), ("share", float("inf"), "a number"), ("sure", "yes", "true or false"),
        ("color", "green", "one of red, blue"), ("size", "3", "one of s, m, 3"), ("day", "31.12.", "a day such as"),
        ("at", "soon", "a time such as"),
    ],
)  # fmt: skip
def test_what_the_schema_refuses_is_said_by_field(name: str, value: Any, said: str) -> None:
    with pytest.raises(InvalidOption, match=f"{name}: {said}"):
        checked_values(approval(schema_of(Everything)), {"text": "a", name: value})


def test_schemas_of_others_are_read_as_far_as_they_go() -> None:
    loop = {"$defs": {"A": {"$ref": "#/$defs/A"}}, "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"pattern": "("}}}
    assert [field.kind for field in fields_of(loop)] == ["json", "json"]
    assert checked_values(approval(loop), {"b": "x"}) == {"b": "x"}
    odd = {"properties": {"c": {"type": "string", "pattern": "("}}}
    assert checked_values(approval(odd), {"c": "x"}) == {"c": "x"}

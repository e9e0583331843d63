"""Approvals: what a durable function asks people, and what they answer.

decision = await wait_for_approval("pay-out", title=f"Pay {amount} to {name}?", timeout=timedelta(days=7))
if decision:
    await step("pay", pay, amount)
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from typing_extensions import TypeVar

from tasklib.errors import InvalidOption
from tasklib.tasks.payload import dump
from tasklib.tasks.unstorable import UnstorableValue

F = TypeVar("F", default=None)
ApproverRole = Literal["approver", "operator", "admin"]
ROLES: tuple[ApproverRole, ...] = ("approver", "operator", "admin")
MAX_TITLE = 500


@dataclass(frozen=True)
class Approval(Generic[F]):
    """How an approval was answered. True in an `if` only if it was approved."""

    approved: bool
    by: str
    """The name of the token, login or database user that answered."""
    comment: str
    values: F | None
    """What was filled in; None if it was rejected, or if nothing was to be filled in."""

    def __bool__(self) -> bool:
        return self.approved

    @property
    def form(self) -> F:
        """What was filled in, for code that has seen that it was approved."""
        if not self.approved:
            raise ValueError(f"this was rejected by {self.by}, so nothing was filled in. Look at `approved` first.")
        return self.values  # type: ignore[return-value]  # None only if F is


@dataclass(frozen=True)
class Question(Generic[F]):
    """What is asked."""

    name: str
    title: str
    details: Any
    role: ApproverRole
    form: Any
    """A class with fields, or None: nothing is to be filled in."""

    def __post_init__(self) -> None:
        if not isinstance(self.title, str) or len(self.title) > MAX_TITLE:
            raise InvalidOption(f"the title of an approval is a text of at most {MAX_TITLE} characters.")
        if self.role not in ROLES:
            raise InvalidOption(f'the role of an approval is "approver", "operator" or "admin", not {self.role!r}.')

    def record(self, until: datetime | None, refused: str | None) -> str:
        """As it is put on record, for the screens that show it."""
        asked = {
            "title": self.title or self.name,
            "details": self.details,
            "role": self.role,
            "form": None if self.form is None else schema_of(self.form),
            # jsonb keeps no order of names, and what people read has one.
            "order": {
                "form": [] if self.form is None else list(schema_of(self.form)["properties"]),
                "details": list(self.details) if isinstance(self.details, dict) else [],
            },
            "expires_at": None if until is None else until.isoformat(),
            "refused": refused,
        }
        try:
            return f'{{"value":{dump(asked)}}}'
        except UnstorableValue as e:
            raise InvalidOption(f"the details of approval {self.name!r} can't be stored: {e.reason}.") from e

    def answered(self, payload: Any) -> Approval[F]:
        """An answer in the declared type. ValueError says why it is none."""
        match payload:
            case {"approved": bool(approved)}:
                by, comment = str(payload.get("by") or ""), str(payload.get("comment") or "")
            case _:
                raise ValueError('an answer is an object with "approved": true or false')
        if not approved or self.form is None:
            return Approval(approved, by, comment, None)
        try:
            return Approval(approved, by, comment, adapter_of(self.form).validate_json(json.dumps(payload.get("form"))))
        except ValidationError as e:
            raise ValueError("; ".join(_in_words(error) for error in e.errors())) from None


@functools.lru_cache(maxsize=1000)
def adapter_of(form: Any) -> TypeAdapter[Any]:
    return TypeAdapter(form)


@functools.lru_cache(maxsize=1000)
def schema_of(form: Any) -> Mapping[str, Any]:
    """The JSON Schema of a form. InvalidOption if it isn't one with named fields."""
    try:
        schema = adapter_of(form).json_schema()
    except PydanticUserError as e:
        raise InvalidOption(f"form= of an approval takes a type that Pydantic knows, not {form!r}: {e}") from None
    if schema.get("type") != "object" or not schema.get("properties"):
        raise InvalidOption(
            f"form= of an approval is a class with fields, such as a Pydantic model or a dataclass, not {form!r}."
        )
    return schema


def _in_words(error: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in error["loc"])
    return f"{place}: {error['msg']}" if place else str(error["msg"])

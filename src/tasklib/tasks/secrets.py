"""Secrets among arguments: stored with their values, and with a mark by which everything that shows tasks hides them.

`SecretStr("hunter2")` is stored as {"$secret": "hunter2"}. The mark is in the row, so a program that hasn't
got the function knows it too.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import Secret, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

from tasklib.columns import SEALED_MARK

SECRET_MARK = "$secret"
"""The only key of a stored secret."""

BLOB_MARK = "$blob"
"""The only key of a pointer into a payload store: see blobs.py."""
_MASKED = "**********"
"""What Pydantic writes for a secret."""


class _HiddenField:
    def __repr__(self) -> str:
        return "Hidden"


HIDDEN = _HiddenField()
T = TypeVar("T")
Hidden: TypeAlias = Annotated[T, HIDDEN]
"""An argument that is stored as it is, and masked wherever tasks are shown: `def log_in(pin: Hidden[str])`."""
_KINDS = (SecretStr, SecretBytes, Secret)
SECRET_IN_TEXT = f'"{SECRET_MARK}"'
"""What JSON text contains that may hold a secret."""


def may_be_in(text: str) -> bool:
    """False if certainly no secret was written in this JSON text."""
    return _MASKED in text


def with_values(text: str, values: Any) -> Iterator[str]:
    """The JSON text with the values of the secrets in it, each under its mark; one text for each form bytes may have.

    `values` is what was written, as Pydantic gives it in its Python form: the same structure, the secrets still whole.
    """
    written = json.loads(text)
    for form in (_in_base64, _in_utf8):
        try:
            yield json.dumps(_revealed(written, values, form), ensure_ascii=False)
        except UnicodeDecodeError:
            continue


def with_marks(text: str, names: Iterable[str]) -> str:
    """Arguments as JSON text, with these of them under the mark."""
    values = json.loads(text)
    marked = {k: {SECRET_MARK: v} if k in names and v is not None else v for k, v in values.items()}
    return json.dumps(marked, ensure_ascii=False)


def without_marks(text: str) -> str:
    """The JSON text as its types expect it."""
    return json.dumps(json.loads(text, object_hook=_unmarked), ensure_ascii=False) if SECRET_IN_TEXT in text else text


def holds_one(text: str, values: Callable[[], Any]) -> bool:
    """True if a secret was written in this JSON text. `values` gives what was written in Pydantic's Python form."""
    return may_be_in(text) and _is_in(values())


def hidden(value: Any) -> Any:
    """A stored value for display: with stars instead of values marked as secret, or sealed."""
    if isinstance(value, dict):
        if value.keys() in ({SECRET_MARK}, {SEALED_MARK}):
            return _MASKED
        return {k: _MASKED if k == SEALED_MARK else hidden(v) for k, v in value.items()}
    return [hidden(item) for item in value] if isinstance(value, list) else value


def _is_in(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_is_in, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_is_in, value))
    return isinstance(value, _KINDS)


def _in_base64(value: bytes) -> str:
    """As bytes are written among the arguments themselves."""
    return urlsafe_b64encode(value).decode()


def _in_utf8(value: bytes) -> str:
    """As a Pydantic model reads bytes, unless it is configured otherwise."""
    return value.decode()


def _revealed(written: Any, value: Any, form: Callable[[bytes], str]) -> Any:
    if isinstance(value, _KINDS):
        plain = value.get_secret_value()
        return {SECRET_MARK: form(plain) if isinstance(plain, bytes) else to_jsonable_python(plain)}
    if isinstance(written, dict):
        return {k: _revealed(w, v, form) for (k, w), v in zip(written.items(), value.values(), strict=False)}
    if isinstance(written, list):
        return [_revealed(w, v, form) for w, v in zip(written, value, strict=False)]
    return written


def _unmarked(found: dict[str, Any]) -> Any:
    return found[SECRET_MARK] if found.keys() == {SECRET_MARK} else found

"""Cursors: the end of a page, as opaque text."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tasklib.errors import InvalidOption


def cursor(kind: str, *place: str | int) -> str:
    """The text for the `next` of an answer."""
    text = json.dumps([kind, *place], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def place_of(kind: str, text: str, *parsers: Callable[[Any], Any]) -> list[Any]:
    """What `cursor` was made of; InvalidOption for anything else, the cursor of another list too."""
    try:
        found = json.loads(base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
        if isinstance(found, list) and found[:1] == [kind]:
            return [parse(part) for parse, part in zip(parsers, found[1:], strict=True)]
    except (ValueError, TypeError, AttributeError, binascii.Error, RecursionError):
        pass
    raise InvalidOption("cursor must be the `next` of the previous page of the same list.")


def moment(text: str) -> datetime:
    """A time in a cursor."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("a time without a zone")
    return found

"""One request and its answer, as data. No input or output here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

from tasklib.client.effects import HttpEffect

API = "/api/v1"
Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Request(HttpEffect):
    """Send this, and answer with an Answer, or Lost."""

    method: str
    path: str
    query: Query = ()
    body: str | None = field(default=None, repr=False)
    """JSON text. Not shown: it may hold secrets."""
    repeatable: bool = False
    """True if asking twice does no more than asking once: it is sent again when its answer is lost."""
    extra_seconds: float = 0.0
    """How much longer than usual the server may take."""
    trace: Mapping[str, str] | None = None
    """The span it is part of; None: whatever is current."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What the errors that may come of it are about."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def json(self) -> Any:
        """The body; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """There is no answer. `was_sent` is False if the server can't have got the request."""

    reason: str
    was_sent: bool


def get(path: str, query: Query = (), **about: Any) -> Request:
    """Look at something."""
    return Request("GET", API + path, query, repeatable=True, about=about)


def query_of(**values: Any) -> list[tuple[str, str]]:
    """Parameters of a URL from what was given: None is left out, a list is repeated."""
    return [
        (name, text_of(one))
        for name, value in values.items()
        if value is not None
        for one in (value if isinstance(value, list | tuple) else [value])
    ]


def body_of(**values: Any) -> str:
    """JSON from what was given: None is left out."""
    return json.dumps({name: value for name, value in values.items() if value is not None}, default=text_of)


def text_of(value: object) -> str:
    """A time, an id or a name as the API writes it."""
    match value:
        case datetime():
            return value.isoformat()
        case bool():
            return "true" if value else "false"
        case Enum():
            return str(value.value)
        case UUID() | str() | int() | float():
            return str(value)
    raise TypeError(f"{value!r} can't be part of a request.")

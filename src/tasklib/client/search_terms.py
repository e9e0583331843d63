"""A search as text: its terms with their places, quoting, and one term exchanged for another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tasklib.errors import InvalidOption
from tasklib.tasks.options import is_storable

MAX_LENGTH = 2000
"""Enough for typing; each term costs time for every task that is read."""

_TERM = re.compile(
    r'\s*(?P<not>-)?(?:(?P<qualifier>[A-Za-z_]+(?:\.[\w.-]+)?):)?(?P<values>(?:"(?:[^"\\]|\\.)*"|[^\s"])*)', re.DOTALL
)
_VALUE = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^,"])+', re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_PLAIN = re.compile(r'[^\s",\\]+')
EXAMPLES = {
    "state": "state:failed",
    "name": "name:send_email",
    "queue": "queue:mail",
    "tag": "tag:customer=42",
    "worker": "worker:web1",
    "schedule": "schedule:nightly",
    "flow": "flow:0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f",
    "node": "node:parse",
    "error": 'error:"connection refused"',
    "id": "id:3f2a9c01",
    "cause": "cause:1f3a9c02",
    "key": "key:order-42",
    "trace": "trace:4bf92f3577b34da6a3ce929d0e0e4736",
    "priority": "priority:high",
    "created": "created:<2h",
    "failed": "failed:<10m",
    "due": "due:<1h",
    "duration": "duration:>10s",
    "args": "args.order:9001",
}
"""The qualifiers, each with an example."""


class SearchError(InvalidOption):
    """A search can't be understood; `at` is where, in characters from the beginning."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a term; in quotes, a star is a star."""

    text: str
    is_quoted: bool
    at: int


@dataclass(frozen=True, slots=True)
class SearchTerm:
    """`-qualifier:value,value`; the qualifier of a word is empty."""

    qualifier: str
    values: tuple[Value, ...]
    is_negated: bool
    at: int
    end: int


def terms(text: str) -> Iterator[SearchTerm]:
    """The terms of a search, not yet understood."""
    if len(text) > MAX_LENGTH:
        raise SearchError(f"a search has at most {MAX_LENGTH:,} characters, and this one {len(text):,}.", MAX_LENGTH)
    if not is_storable(text):
        raise SearchError("a search is text, without NUL.", 0)
    place = 0
    while text[place:].strip():
        match = _TERM.match(text, place)
        assert match is not None
        at, place = match.start() + len(match[0]) - len(match[0].lstrip()), match.end()
        if text[place : place + 1] == '"':
            raise SearchError("this quote is not closed.", place)
        # The name of an argument or a tag is as it is: args.Order.
        qualifier, dot, key = (match["qualifier"] or "").partition(".")
        qualifier = qualifier.lower() + dot + key
        values = tuple(_values(match["values"], match.start("values")))
        if not values:
            what = f"{qualifier}: needs a value, such as {EXAMPLES.get(qualifier, f'{qualifier}:something')}"
            raise SearchError(f"{what if qualifier else 'there is no term after this -'}.", at)
        yield SearchTerm(qualifier, values, match["not"] is not None, at, place)


def quoted(value: str) -> str:
    """A value as a search has it: in quotes if it needs them."""
    # A star in quotes is a star.
    if _PLAIN.fullmatch(value) and "*" not in value and not value.startswith(("-", "<", ">")):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def with_term(text: str, qualifier: str, value: str | None) -> str:
    """The same search with this value for a qualifier, and no other; None takes the qualifier away."""
    try:
        kept = [text[t.at : t.end] for t in terms(text) if t.qualifier != qualifier]
    except SearchError:
        kept = []
    return " ".join(kept if value is None else [*kept, f"{qualifier}:{quoted(value)}"])


def _values(text: str, at: int) -> Iterator[Value]:
    for match in _VALUE.finditer(text):
        is_quoted = '"' in match[0]
        plain = _QUOTED.sub(lambda inner: re.sub(r"\\(.)", r"\1", inner[1], flags=re.DOTALL), match[0])
        if plain:
            yield Value(plain, is_quoted, at + match.start())

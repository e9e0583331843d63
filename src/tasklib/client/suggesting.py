"""Suggestions while a search is typed: how its last term can go on, with how many tasks have it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tasklib.client.effects import Call
from tasklib.client.identity import OnBehalf
from tasklib.client.search_language import like
from tasklib.client.search_terms import EXAMPLES, MAX_LENGTH, quoted
from tasklib.states import TaskState
from tasklib.store import search
from tasklib.store.search import CappedCount

LOOK = 2_000
"""The newest tasks whose values are counted."""
MOST = 10
_COUNT_STATES_UP_TO = 500
_LAST = re.compile(r'(?P<not>-?)(?P<term>(?:"[^"]*"?|[^\s"])*)$')
_FIELDS = ("name", "queue", "worker", "schedule", "node", "cause")
_TIMES = {
    "created": ("<1h", "<24h", "<7d", ">7d"),
    "failed": ("<10m", "<1h", "<24h"),
    "due": ("<10m", "<1h", ">1h"),
    "duration": (">1s", ">10s", ">1m", ">10m"),
    "priority": ("high", "medium", "low"),
}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One way to go on."""

    text: str
    """The whole search with it."""
    term: str
    """What it adds: `state:failed`."""
    count: int | None = None
    """How many tasks have it; None where that isn't counted."""
    is_least: bool = False
    """True: counting stopped there."""
    of: int | None = None
    """The count is among so many of the newest tasks; None: among all."""


class SuggestingCalls(OnBehalf):
    """Suggestions, by bounded reads."""

    def suggest(self, text: str) -> Call[list[Suggestion]]:
        """How the last term of a search can go on: `suggest("state:f")`. Reads at most the newest 2,000 tasks."""
        match = _LAST.search(text)
        if match is None or len(text) > MAX_LENGTH:
            return []
        before = text[: match.start()] + match["not"]
        qualifier, colon, value = match["term"].partition(":")
        value = value.strip('"').rpartition(",")[2] if colon else ""
        name, _, key = qualifier.partition(".")
        name = name.lower()
        found: list[Suggestion]
        if not colon:
            found = [Suggestion("", term) for term in _qualifiers(match["term"])]
            found += yield from self._keys(match["term"])
        elif name == "state":
            found = yield from self._states(value)
        elif name in _TIMES:
            found = [Suggestion("", f"{name}:{v}") for v in _TIMES[name] if v.startswith(value)]
        else:
            found = yield from self._values(name, key, value)
        return [Suggestion(before + s.term, s.term, s.count, s.is_least, s.of) for s in found[:MOST]]

    def _states(self, value: str) -> Call[list[Suggestion]]:
        states = [s.value for s in TaskState if s.value.startswith(value.lower())]
        if self.identity.owner is not None:
            return [Suggestion("", f"state:{s}") for s in states]
        counts: dict[str, CappedCount] = yield search.count_states(_COUNT_STATES_UP_TO)
        none = CappedCount(0, is_capped=False)
        return [
            Suggestion("", f"state:{s}")
            if s == TaskState.COMPLETED
            else Suggestion("", f"state:{s}", counts.get(s, none).count, counts.get(s, none).is_capped)
            for s in states
        ]

    def _keys(self, typed: str) -> Call[list[Suggestion]]:
        """`args.or` and `tag.cus`: names of arguments and tags."""
        name, dot, key = typed.partition(".")
        if not dot or name not in ("args", "tag"):
            return []
        found: list[tuple[str, int]] = yield self._read(f"{name}_key", "", key)
        plain = [(k, n) for k, n in found if re.fullmatch(r"[\w.-]+", k)]
        return [Suggestion("", f"{name}.{k}:", n, of=LOOK) for k, n in plain]

    def _values(self, name: str, key: str, value: str) -> Call[list[Suggestion]]:
        if name == "tag" and not key:
            key, equals, value = value.partition("=")
            if not equals:
                keys: list[tuple[str, int]] = yield self._read("tag_key", "", key)
                return [Suggestion("", f"tag:{quoted(k)}=", n, of=LOOK) for k, n in keys]
        elif name not in _FIELDS and not (name in ("tag", "args") and key):
            return []
        found: list[tuple[str, int]] = yield self._read(name, key, value)
        start = f"{name}.{key}:" if key else f"{name}:"
        return [Suggestion("", start + quoted(v), n, of=LOOK) for v, n in found]

    def _read(self, field: str, key: str, typed: str) -> search.Suggested:
        return search.suggest(field, key, like(typed), LOOK, MOST, owner=self.identity.owner)


def _qualifiers(typed: str) -> Sequence[str]:
    names = [q for q in EXAMPLES if q.startswith(typed.lower())]
    return [f"{q}." if q == "args" else f"{q}:" for q in names]

"""What a search means: `state:failed -queue:mail tag:customer=42 created:<2h welcome`.

A search is a row of terms. `qualifier:value` speaks of one field, any other word of the name or the id. A value in
quotes may have spaces and commas in it; `a,b` is either; `-` in front says not.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn
from uuid import UUID

from tasklib.client.search_terms import EXAMPLES, SearchError, SearchTerm, Value, terms
from tasklib.config import PRIORITY_MAX, PRIORITY_MIN, Config
from tasklib.states import CLAIMABLE, TaskState
from tasklib.store.search import Search, Tag

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_COMPARED = re.compile(r"(>=|<=|>|<)?(.+)", re.DOTALL)


def parse(text: str, config: Config, now: datetime) -> Search:
    """What a search seeks. Lengths of time such as `2h` count back from `now`."""
    reader = _Reader(config, now)
    for term in terms(text):
        reader.read(term)
    return _in_states_with_times(reader.search)


def _in_states_with_times(search: Search) -> Search:
    """Only failed tasks have a time of failure, only waiting ones are due: so an index of their states finds them."""
    for field, states in (("failed", (TaskState.FAILED, TaskState.DEAD_LETTER)), ("due", CLAIMABLE)):
        if getattr(search, f"{field}_from") is not None or getattr(search, f"{field}_to") is not None:
            kept = tuple(s.value for s in TaskState if s in states and (search.states is None or s in search.states))
            search = replace(search, states=kept)
    return search


def like(text: str) -> str:
    """A pattern that only this text fits."""
    return re.sub(r"([\\%_])", r"\\\1", text)


def _named(value: Value) -> str:
    """A name as it is; a star is anything."""
    pattern = like(value.text)
    return pattern if value.is_quoted else pattern.replace("*", "%")


class _Reader:
    """Understands one term after the other."""

    def __init__(self, config: Config, now: datetime) -> None:
        self.config = config
        self.now = now
        self.search = Search()
        self.wanted: set[TaskState] = set()
        self.unwanted: set[TaskState] = set()

    def read(self, term: SearchTerm) -> None:
        qualifier, dot, key = term.qualifier.partition(".")
        if dot and qualifier in ("args", "tag"):
            self.keyed(term, "arguments" if qualifier == "args" else "tags", key)
        elif term.qualifier in _QUALIFIERS:
            _QUALIFIERS[term.qualifier](self, term)
        else:
            _unknown(term)

    def add(self, term: SearchTerm, field: str, values: Sequence[Any]) -> None:
        """To the field that wants, or to the one that doesn't."""
        name = f"not_{field}" if term.is_negated else field
        changes: dict[str, Any] = {name: (*getattr(self.search, name), *values)}
        self.search = replace(self.search, **changes)

    def states(self, term: SearchTerm) -> None:
        (self.unwanted if term.is_negated else self.wanted).update(_state(value) for value in term.values)
        states = tuple(s.value for s in TaskState if s in (self.wanted or TaskState) and s not in self.unwanted)
        self.search = replace(self.search, states=states)

    def names(self, term: SearchTerm) -> None:
        self.add(term, "names", [_named(v) for v in term.values])

    def queues(self, term: SearchTerm) -> None:
        self.add(term, "queues", [_named(v) for v in term.values])

    def workers(self, term: SearchTerm) -> None:
        self.add(term, "workers", [f"{_named(v)}%" for v in term.values])

    def schedules(self, term: SearchTerm) -> None:
        self.add(term, "schedules", [_named(v) for v in term.values])

    def flows(self, term: SearchTerm) -> None:
        wanted: list[str] = []
        for value in term.values:
            flow = _uuid(value.text)
            if flow is None and (value.text != "*" or value.is_quoted):
                raise SearchError(f"{_said(value)} is not a flow's id; flow:* is any flow.", value.at)
            wanted.append("%" if flow is None else str(flow))
        self.add(term, "flows", wanted)

    def nodes(self, term: SearchTerm) -> None:
        self.add(term, "nodes", [_named(v) for v in term.values])

    def errors(self, term: SearchTerm) -> None:
        self.add(term, "errors", [f"%{_named(v)}%" for v in term.values])

    def causes(self, term: SearchTerm) -> None:
        for value in term.values:
            if not re.fullmatch(r"[0-9a-f]{6,32}", value.text):
                raise SearchError(f"{_said(value)} is not a fingerprint: 6 to 32 of 0-9 and a-f.", value.at)
        self.add(term, "causes", [f"{v.text}%" for v in term.values])

    def keys(self, term: SearchTerm) -> None:
        self.add(term, "keys", [_named(v) for v in term.values])

    def traces(self, term: SearchTerm) -> None:
        for value in term.values:
            if not re.fullmatch(r"[0-9a-f-]{6,36}", value.text.lower()):
                raise SearchError(
                    f"{_said(value)} is not a trace's id: 32 of 0-9 and a-f, or the first of them.", value.at
                )
        self.add(term, "traces", [f"{v.text.lower().replace('-', '')}%" for v in term.values])

    def arguments(self, term: SearchTerm) -> NoReturn:
        raise SearchError("name the argument, as in args.order:9001.", term.at)

    def keyed(self, term: SearchTerm, field: str, key: str) -> None:
        """`tag.customer:42` and `args.order.id:9001`: a key, and the values it may have; `*` is any."""
        name = f"not_{field}" if term.is_negated else field
        wanted = {tag.key: tag.values for tag in getattr(self.search, name)}
        is_any = any(v.text == "*" and not v.is_quoted for v in term.values)
        wanted[key] = () if is_any else (*wanted.get(key, ()), *(v.text for v in term.values))
        changes: dict[str, Any] = {name: tuple(Tag(key, values) for key, values in wanted.items())}
        self.search = replace(self.search, **changes)

    def tags(self, term: SearchTerm) -> None:
        """Another value of a key it has already is one more that may fit."""
        before = self.search.not_tags if term.is_negated else self.search.tags
        wanted = {tag.key: tag.values for tag in before}
        key = ""
        for value in term.values:
            # `customer=42,43`: what follows a comma without a key of its own is another value.
            found, equals, text = value.text.partition("=")
            if not equals and key:
                text = found
            elif not found:
                raise SearchError("a tag is tag:key or tag:key=value.", value.at)
            else:
                key = found
            wanted[key] = (*wanted.get(key, ()), text) if equals or text else ()
        tags = tuple(Tag(key, values) for key, values in wanted.items())
        self.search = replace(self.search, not_tags=tags) if term.is_negated else replace(self.search, tags=tags)

    def ids(self, term: SearchTerm) -> None:
        for value in term.values:
            whole = _uuid(value.text)
            end = value.text.strip("….").lower()
            if whole is not None and not term.is_negated:
                self.search = replace(self.search, exact=(*self.search.exact, whole))
            elif whole is not None:
                self.add(term, "ids", [str(whole)])
            elif re.fullmatch(r"[0-9a-f-]{4,35}", end):
                self.add(term, "ids", [f"%{end}"])
            else:
                raise SearchError(
                    f"{_said(value)} is not a task's id, nor the end of one (4 characters or more).", value.at
                )

    def priorities(self, term: SearchTerm) -> None:
        self.add(term, "priorities", [self._range(v) for v in term.values])

    def times(self, term: SearchTerm) -> None:
        """`created:<2h`, `failed:<10m`, `due:<1h`: of a time to come, a length counts from now on."""
        field = term.qualifier
        value, *more = term.values
        if more:
            raise SearchError(f"{field}: takes one time; for a span write {field}:2025-06-01..2025-06-30.", term.at)
        begin, end = self._span(value, is_to_come=field == "due")
        if term.is_negated:
            # Not before is after, and the other way round; neither is two spans.
            if begin is not None and end is not None:
                raise SearchError(
                    f"-{field}: can't leave out the middle; write {field}:<... or {field}:>... .", term.at
                )
            begin, end = end, begin
        self._bound(field, begin, end)

    def durations(self, term: SearchTerm) -> None:
        """`duration:>10s`: how long the last attempt took, or has run until now."""
        for value in term.values:
            match = _COMPARED.fullmatch(value.text)
            span = _SPAN.fullmatch(match[2].strip().lower()) if match and match[1] else None
            if match is None or span is None or term.is_negated:
                raise SearchError(
                    f"{_said(value)} is not a duration; write duration:>10s or duration:<500ms.", value.at
                )
            seconds = float(span[1]) * _UNITS[span[2]]
            self._bound("duration", *((seconds, None) if match[1].startswith(">") else (None, seconds)))

    def _bound(self, field: str, begin: Any, end: Any) -> None:
        froms = [m for m in (getattr(self.search, f"{field}_from"), begin) if m is not None]
        tos = [m for m in (getattr(self.search, f"{field}_to"), end) if m is not None]
        changes: dict[str, Any] = {f"{field}_from": max(froms, default=None), f"{field}_to": min(tos, default=None)}
        self.search = replace(self.search, **changes)

    def words(self, term: SearchTerm) -> None:
        for value in term.values:
            whole = _uuid(value.text)
            if whole is not None and not term.is_negated:
                self.search = replace(self.search, exact=(*self.search.exact, whole))
        # A word with commas is a word.
        text = ",".join(v.text for v in term.values)
        if _uuid(text) is None or term.is_negated:
            pattern = like(text) if any(v.is_quoted for v in term.values) else like(text).replace("*", "%")
            self.add(term, "words", [f"%{pattern}%"])

    def _range(self, value: Value) -> tuple[int, int]:
        match = _COMPARED.fullmatch(value.text)
        assert match is not None
        comparison, text = match[1] or "", match[2].strip()
        level = self.config.levels.get(text.lower())
        if level is None and not re.fullmatch(r"-?\d{1,3}", text):
            known = ", ".join(self.config.levels)
            raise SearchError(f"a priority is a number from -10 to 100, or {known}; not {_said(value)}.", value.at)
        number = level.priority if level else int(text)
        return {
            "": (number, number),
            ">": (number + 1, PRIORITY_MAX),
            ">=": (number, PRIORITY_MAX),
            "<": (PRIORITY_MIN, number - 1),
            "<=": (PRIORITY_MIN, number),
        }[comparison]

    def _span(self, value: Value, *, is_to_come: bool) -> tuple[datetime | None, datetime | None]:
        """From when, and until when. Of a length of time `<` is nearer to now; of a moment `>` is later."""
        if ".." in value.text:
            begin, _, end = value.text.partition("..")
            return (
                self._moment(begin, value)[0] if begin else None,
                self._moment(end, value)[1] if end else None,
            )
        match = _COMPARED.fullmatch(value.text)
        assert match is not None
        comparison, text = match[1] or "", match[2].strip()
        first, last = self._moment(text, value)
        if _SPAN.fullmatch(text.lower()):
            if is_to_come:
                first = self.now + (self.now - first)
            return (None, first) if comparison.startswith(">") != is_to_come else (first, None)
        return {"": (first, last), ">": (last, None), ">=": (first, None), "<": (None, first), "<=": (None, last)}[
            comparison
        ]

    def _moment(self, text: str, value: Value) -> tuple[datetime, datetime]:
        """The moment itself, twice; of a day its beginning and its end. Without a time zone it is UTC."""
        try:
            if match := _SPAN.fullmatch(text.lower()):
                ago = self.now - timedelta(seconds=float(match[1]) * _UNITS[match[2]])
                return ago, ago
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            moment = moment.astimezone(UTC)
            is_day = re.fullmatch(r"\d{4}-\d\d-\d\d", text) is not None
            return moment, moment + timedelta(days=1) if is_day else moment
        except OverflowError:
            raise SearchError(f"{_said(value)} is out of range.", value.at) from None
        except ValueError:
            raise SearchError(
                f"{_said(value)} is not a time; write created:<2h for the last two hours, created:>7d for longer ago, "
                "or a date such as created:>2025-06-30.",
                value.at,
            ) from None


_QUALIFIERS: Mapping[str, Callable[[_Reader, SearchTerm], None]] = {
    "": _Reader.words,
    "state": _Reader.states,
    "name": _Reader.names,
    "queue": _Reader.queues,
    "tag": _Reader.tags,
    "worker": _Reader.workers,
    "schedule": _Reader.schedules,
    "flow": _Reader.flows,
    "node": _Reader.nodes,
    "error": _Reader.errors,
    "id": _Reader.ids,
    "priority": _Reader.priorities,
    "cause": _Reader.causes,
    "key": _Reader.keys,
    "trace": _Reader.traces,
    "created": _Reader.times,
    "failed": _Reader.times,
    "due": _Reader.times,
    "duration": _Reader.durations,
    "args": _Reader.arguments,
}
QUALIFIERS = tuple(EXAMPLES)


def _unknown(term: SearchTerm) -> NoReturn:
    near = difflib.get_close_matches(term.qualifier, QUALIFIERS, n=1, cutoff=0.6)
    hint = f"Did you mean {near[0]}:?" if near else f"There are {', '.join(f'{q}:' for q in QUALIFIERS)}."
    raise SearchError(
        f"{term.qualifier}: is unknown. {hint} For a word with a colon in it, write it in quotes.", term.at
    )


def _state(value: Value) -> TaskState:
    text = value.text.lower().replace("-", "_")
    try:
        return TaskState(text)
    except ValueError:
        near = difflib.get_close_matches(text, list(TaskState), n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise SearchError(
            f"there is no state {_said(value)}. {hint}States are {', '.join(TaskState)}.", value.at
        ) from None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text) if len(text) >= 32 else None
    except ValueError:
        return None


def _said(value: Value) -> str:
    text = value.text if len(value.text) <= 60 else value.text[:59] + "…"
    return f'"{text}"'

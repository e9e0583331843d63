"""A schedule as the fields of a form: every field a text. A text that was not changed keeps its value as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from tasklib.errors import InvalidOption
from tasklib.formatting import length, length_text
from tasklib.schedules import Schedule, zones
from tasklib.schedules.schedule import EPOCH
from tasklib.server.redaction import Redaction

NAMES = tuple(each.name for each in fields(Schedule) if each.name != "name")
EMPTY = {**dict.fromkeys(NAMES, ""), "timezone": "UTC", "catch_up": "latest", "overlap": "allow", "args": "{}"}
_LINES = ("cron", "exclude", "required_capabilities")
_LENGTHS = ("every", "catch_up_window", "jitter")
_TIMES = ("anchor", "starts_at", "ends_at")
_NUMBERS = ("catch_up_limit", "pause_after", "max_retries", "timeout_seconds")
_JSON = ("args", "tags")


def filled(schedule: Schedule, redaction: Redaction) -> dict[str, str]:
    """What the form shows of a schedule; secrets among its arguments are masked."""
    texts = _texts(schedule, redaction)
    values = {name: getattr(schedule, name) for name in NAMES}
    masked = {name: redaction.masked(dict(values[name]), texts) for name in _JSON if values[name] is not None}
    return {name: _text(name, masked.get(name, value), schedule.timezone) for name, value in values.items()}


def read(given: Mapping[str, str], known: Schedule | None, redaction: Redaction) -> Schedule:
    """The schedule that the form says; `known` is the one that it was filled with. InvalidOption if it can't be."""
    shown = EMPTY if known is None else filled(known, redaction)
    texts = {name: given.get(name, shown[name]).replace("\r\n", "\n").strip() for name in NAMES}
    zone = zones.check(texts["timezone"] or "UTC")
    values: dict[str, Any] = {"timezone": zone}
    for name, text in texts.items():
        # A time of day belongs to the zone: with another zone it is another instant.
        if known is not None and text == shown[name] and (name not in _TIMES or zone == known.timezone):
            values[name] = getattr(known, name)
        elif text and name != "timezone":
            values[name] = _value(name, text, zone)
    if known is not None:
        masks = _texts(known, redaction)
        values["args"] = redaction.restored(values.get("args", {}), dict(known.args), masks)
        values["tags"] = redaction.restored(values.get("tags"), known.tags and dict(known.tags), masks)
    return Schedule(**values)


def _texts(schedule: Schedule, redaction: Redaction) -> Callable[[str], str]:
    return redaction.texts_in([dict(schedule.args), dict(schedule.tags or {})])


def _text(name: str, value: Any, zone: str) -> str:
    if value is None or (name == "anchor" and value == EPOCH) or (name == "jitter" and not value):
        return ""
    if name in _LINES:
        return "\n".join(map(str, value))
    if name in _LENGTHS:
        return length_text(value)
    if name in _TIMES:
        return local_text(value, zone)
    if name in _JSON:
        return json.dumps(value, indent=2, ensure_ascii=False)
    return str(value)


def _value(name: str, text: str, zone: str) -> Any:
    if name in _LINES:
        return [line.strip() for line in text.splitlines() if line.strip()]
    if name in _LENGTHS:
        return _length(name, text)
    if name in _TIMES:
        return local_moment(name, text, zone)
    if name in _NUMBERS:
        return _parsed(int, name, text, "a whole number")
    if name in _JSON:
        return _parsed(json.loads, name, text, 'a JSON object, such as {"full": true}')
    if name == "priority":
        return int(text) if text.removeprefix("-").isdecimal() else text
    return text


def local_text(moment: datetime, zone: str) -> str:
    """A moment as an input of a form takes it: on the clock of the zone."""
    return moment.astimezone(zones.load(zone)).replace(tzinfo=None).isoformat(timespec="seconds")


def local_moment(name: str, text: str, zone: str) -> datetime:
    """A time on the clock of a zone; one with an offset of its own is taken as it is."""
    moment: datetime = _parsed(datetime.fromisoformat, name, text, "a time such as 2026-03-29T03:00")
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zones.load(zone))


def _length(name: str, text: str) -> Any:
    found = _parsed(length, name, text, "a length of time such as 90s, 15m, 12h or 7d")
    if found is None:
        raise _wrong(name, text, "a length of time such as 90s, 15m, 12h or 7d")
    return found


def _parsed(parse: Callable[[str], Any], name: str, text: str, wanted: str) -> Any:
    try:
        return parse(text)
    except (ValueError, OverflowError, RecursionError):
        raise _wrong(name, text, wanted) from None


def _wrong(name: str, text: str, wanted: str) -> InvalidOption:
    return InvalidOption(f"{name} must be {wanted}, not {text[:100]!r}.")

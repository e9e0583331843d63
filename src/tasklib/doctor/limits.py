"""Limits that let nothing begin for a long time, and limits that bound nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, note, ok, warning
from tasklib.formatting import count, duration, shell_word
from tasklib.store import limits
from tasklib.store.limits import FullLimit, LimitInfo, MissingLimit

_LONG_SECONDS = 600.0
"""A limit that gave no place for so long while tasks wait is worth a look."""
_MOST = 20


def look(config: Config) -> Call[list[Finding]]:
    """Limits in the way of due tasks, and those that are not where the code expects them."""
    known: list[LimitInfo] = yield limits.limits()
    missing: list[MissingLimit] = yield limits.missing()
    if not known and not missing:
        return [ok("limits", "No limits.")]
    waiting: dict[str, int] = yield limits.waiting()
    full: list[FullLimit] = yield limits.full(_LONG_SECONDS, _MOST)
    found = [*_closed(known, waiting), *_stuck(full, waiting), *_blocked(known, waiting), *map(_missing, missing)]
    return found or [ok("limits", f"{count(len(known), 'limit')}, none in the way for long.")]


def _closed(known: Sequence[LimitInfo], waiting: dict[str, int]) -> Iterator[Finding]:
    for limit in known:
        if limit.max_running == 0 and (behind := waiting.get(limit.name)):
            yield warning(
                "limit_closed",
                f"The limit {limit.name!r} lets no task begin (max_running 0), and {_wait(behind)} behind it.",
                "They wait until it is raised.",
                f"tasklib limit set {shell_word(limit.name)} --max-running N",
                limit=limit.name,
                waiting=behind,
            )


def _stuck(full: Sequence[FullLimit], waiting: dict[str, int]) -> Iterator[Finding]:
    for limit in full:
        if behind := waiting.get(limit.name):
            which = f"{limit.name!r} for {limit.key!r}" if limit.key else repr(limit.name)
            yield warning(
                "limit_full",
                f"The limit {which} is full, and no place in it was given for {duration(limit.seconds)}; "
                f"{_wait(behind)} behind it.",
                "A task that doesn't end keeps its place.",
                f"See what the task does that has held a place longest: tasklib explain {limit.holder}",
                limit=limit.name,
                key=limit.key or None,
                running=limit.running,
                waiting=behind,
                seconds=limit.seconds,
                holder=limit.holder,
            )


def _blocked(known: Sequence[LimitInfo], waiting: dict[str, int]) -> Iterator[Finding]:
    for limit in known:
        if limit.blocked_until is not None and (behind := waiting.get(limit.name)):
            yield note(
                "limit_blocked",
                f"The limit {limit.name!r} is blocked until {_clock(limit.blocked_until)}, because a task was "
                f"throttled; {_wait(behind)} behind it.",
                limit=limit.name,
                waiting=behind,
                until=limit.blocked_until.isoformat(),
            )


def _missing(limit: MissingLimit) -> Finding:
    names = ", ".join(limit.functions[:5]) + (", ..." if len(limit.functions) > 5 else "")
    name = shell_word(limit.name)
    if limit.is_removed:
        seen = f"The limit {limit.name!r} was removed, and {names} should be behind it."
        action = f"To have it as the code declares it: tasklib limit reset {name}"
    else:
        seen = f"{names} should be behind the limit {limit.name!r}, which has no bounds."
        action = f"Give it some in the code, Limit({limit.name!r}, max_running=N), or: tasklib limit set {name} ..."
    why = "Their tasks begin without it."
    return warning("limit_missing", seen, why, action, limit=limit.name, functions=limit.functions)


def _wait(number: int) -> str:
    return f"at least {count(number, 'due task')} wait{'s' if number == 1 else ''}"


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}"

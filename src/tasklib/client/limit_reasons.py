"""Which limits keep a task waiting, in sentences, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from tasklib.client.reason import Reason, at
from tasklib.formatting import count, duration
from tasklib.store.limits import LimitOnTask


def behind(limits: Sequence[LimitOnTask], now: datetime) -> Iterator[Reason]:
    """Of the limits of a waiting task, those that have no room."""
    for limit in limits:
        if limit.blocked_until is not None and limit.blocked_until > now:
            yield _blocked(limit, limit.blocked_until, now)
        elif limit.serial is not None and limit.running:
            yield _serial(limit)
        elif limit.max_running is not None and limit.running >= limit.max_running:
            yield _full(limit)
        elif limit.token_in:
            yield _spent(limit, limit.token_in)


def _blocked(limit: LimitOnTask, until: datetime, now: datetime) -> Reason:
    return Reason(
        "limit_blocked",
        f"The limit {_named(limit)} is blocked until {at(until, now)}: a task was throttled.",
        "It waits without using a retry.",
        {**_details(limit), "until": until.isoformat(), "seconds": (until - now).total_seconds()},
    )


def _serial(limit: LimitOnTask) -> Reason:
    what = "queue" if limit.name.startswith("queue:") else "key"
    return Reason(
        "serial",
        f"Tasks of its {what} ({_named(limit)}) run one at a time, and {limit.holder} comes first.",
        f"See that task: tasklib explain {limit.holder}",
        {**_details(limit), "holder": limit.holder},
    )


def _full(limit: LimitOnTask) -> Reason:
    raising = f"tasklib limit set {limit.name} --max-running N"
    if not limit.max_running:
        return Reason(
            "limit_reached", f"The limit {_named(limit)} lets no task begin.", f"Raise it: {raising}", _details(limit)
        )
    return Reason(
        "limit_reached",
        f"The limit {_named(limit)} is reached: {limit.running} of {count(limit.max_running, 'task')} run. "
        f"{_expected(limit.free_in)}",
        f"It begins when one of them ends. Or raise it: {raising}",
        {**_details(limit), "seconds": limit.free_in},
    )


def _expected(free_in: float | None) -> str:
    """When a place becomes free, as far as is known."""
    if free_in is None:
        return "When the first of them ends is not known."
    if free_in < 1:
        return "By how long such tasks took in the last hour, the first of them ends any moment."
    return f"By how long such tasks took in the last hour, the first of them ends in about {duration(free_in)}."


def _spent(limit: LimitOnTask, seconds: float) -> Reason:
    return Reason(
        "rate_limited",
        f"The limit {_named(limit)} of {limit.rate:g} in {duration(limit.per or 0)} is used up; the next task "
        f"behind it begins in {duration(seconds)}.",
        "It waits without using a retry.",
        {**_details(limit), "seconds": seconds},
    )


def _named(limit: LimitOnTask) -> str:
    return f"{limit.name!r} for {limit.key!r}" if limit.key else repr(limit.name)


def _details(limit: LimitOnTask) -> dict[str, Any]:
    bounds = ("max_running", "rate", "per", "burst", "serial")
    said = {name: value for name in bounds if (value := getattr(limit, name)) is not None}
    return {"limit": limit.name, "key": limit.key or None, "running": limit.running, **said}

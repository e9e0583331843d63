"""One reason why a task, or a schedule, is not running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tasklib.formatting import duration

NAMED = 5
"""How many of many are named in a sentence."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps a task from running, or says why nothing does."""

    code: str
    sentence: str
    hint: str = ""
    """What to do about it, if anything."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The same as data, ready for JSON."""


def at(moment: datetime, now: datetime) -> str:
    """A moment, and how far away it is."""
    seconds = (moment - now).total_seconds()
    relative = f"in {duration(seconds)}" if seconds > 0 else f"{duration(-seconds)} ago"
    return f"{moment.astimezone().isoformat(sep=' ', timespec='seconds')} ({relative})"


def some(items: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(items) - NAMED} more" if len(items) > NAMED else ""
    return ", ".join(items[:NAMED]) + more

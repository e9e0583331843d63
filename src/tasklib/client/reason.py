"""One reason why a task, or a schedule, is not running."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tasklib.formatting import duration


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

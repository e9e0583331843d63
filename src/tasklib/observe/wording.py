"""How events are said to a person; the words themselves are those of `tasklib.wording`."""

from __future__ import annotations

from tasklib.events import TaskEnded
from tasklib.states import CLAIMABLE
from tasklib.wording import count, duration, last_line, printable, printable_json, short_id

__all__ = ["count", "duration", "last_line", "printable", "printable_json", "short_id", "was_given_back"]


def was_given_back(event: TaskEnded) -> bool:
    """True for an attempt that the worker broke off: its task waits again as it did before."""
    return event.error is None and event.state in CLAIMABLE

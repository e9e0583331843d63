"""How events are said to a person; the words themselves are those of `tasklib.formatting`."""

from __future__ import annotations

from tasklib.events import TaskEnded
from tasklib.formatting import count, duration, last_line, printable, printable_json, short_id
from tasklib.states import CLAIMABLE

__all__ = ["count", "duration", "last_line", "printable", "printable_json", "short_id", "was_given_back"]


def was_given_back(event: TaskEnded) -> bool:
    """True for an attempt that the worker broke off: its task waits again as it did before."""
    return event.error is None and event.state in CLAIMABLE

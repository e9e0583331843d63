"""What durable tasks have on record is known by its kind and name."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

CHILDREN = ":children"
"""What a task that waits for gathered tasks has among its awaited signals; sql/flows/fold.sql knows it."""


APPROVAL = "approval:"
"""What the names of signals begin with that answer an approval; the SQL function tasklib_answer knows it."""


class StepKind(StrEnum):
    """What a record is of."""

    STEP = "step"
    SLEEP = "sleep"
    """Until when it sleeps."""
    SIGNAL = "signal"
    """The signal that was consumed, or that none came in time."""
    TIMER = "timer"
    """Until when it waits for a signal."""
    PATCH = "patch"
    """Which branch of changed code it is on."""
    CHILDREN = "children"
    """The flow that a `gather` has submitted."""
    GATHER = "gather"
    """What the tasks of that flow returned."""
    DEADLINE = "deadline"
    """When the task as a whole must be finished."""
    APPROVAL = "approval"
    """What was asked in an approval; `closed` once it is over."""


def is_plain_signal(name: str) -> bool:
    """Whether a name among awaited signals is one that programs send: neither an approval nor gathered tasks."""
    return name != CHILDREN and not name.startswith(APPROVAL)


class StepId(NamedTuple):
    """Names a record of one task."""

    kind: StepKind
    name: str

"""What durable tasks have on record is known by its kind and name."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


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
    DEADLINE = "deadline"
    """When the task as a whole must be finished."""


class StepId(NamedTuple):
    """Names a record of one task."""

    kind: StepKind
    name: str

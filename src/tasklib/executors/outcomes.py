"""How an attempt ended, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias


class FailureKind(StrEnum):
    """Why an attempt failed; also the `outcome` in a task's history."""

    ERROR = "error"
    TIMEOUT = "timeout"
    RETRY = "retry"
    REJECTED = "rejected"
    CRASH = "crash"
    THROTTLED = "throttled"


@dataclass(frozen=True, slots=True)
class Done:
    """The function returned; `result` is the JSON text to store."""

    result: str


@dataclass(frozen=True, slots=True)
class DoneAndStored(Done):
    """The same, with a result that is stored as it is: it is sealed already, or a pointer to one that is."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The function raised, ran out of time, or took its process down."""

    error: str
    kind: FailureKind = FailureKind.ERROR
    retriable: bool = True
    delay_seconds: float | None = None
    """How long the task asked to wait; None leaves it to the policy."""
    raised: str | None = None
    """The class of the exception, for traces."""
    limit: str | None = None
    """Of one that was throttled: the limit to hold, as `Failure.limit` has it; None: those of the task."""


@dataclass(frozen=True, slots=True)
class Released:
    """The task goes back as it was: the worker is going away, or the function could not be called."""

    reason: str = ""
    """Why the function could not be called: no process could be started for it, say. The worker reports it."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The task was cancelled and the attempt has stopped; `error` is its last error."""

    error: str


@dataclass(frozen=True, slots=True)
class Committed:
    """A transactional attempt has committed its own completion: nothing is left to write."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another attempt holds the lease by now: nothing may be written."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """A durable function waits: until a moment (None: for ever), or for one of some signals before that."""

    until: datetime | None
    signals: tuple[str, ...] = ()
    seen: int | None = None
    """How many signals had been sent to the task when it found none of these."""
    kwargs: str | None = None
    """JSON text: the function begins anew with these arguments."""
    payload_version: int | None = None
    """Of these arguments."""


Outcome: TypeAlias = Done | Failed | Released | Cancelled | Committed | Lost | Suspended

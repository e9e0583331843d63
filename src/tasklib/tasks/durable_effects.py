"""What a run of a durable function asks for: each operation yields these effects, and is answered as each says."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from tasklib.steps import StepId

if TYPE_CHECKING:
    from tasklib.tasks.gathering import ChildFlow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Load:
    """Read all that is on record; answered with `Loading`."""


class Loading(NamedTuple):
    records: Mapping[StepId, str]
    now: datetime


@dataclass(frozen=True, slots=True)
class Record:
    """Put on record a result (JSON text), or the moment so many seconds from now; answered with what is on record."""

    id: StepId
    result: str | None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Consume:
    """Consume the next signal of this name and record it; answered with `FoundSignal`."""

    signal: str
    step: str
    expired: bool
    approval: str | None = None
    """The approval that is over with this."""


class FoundSignal(NamedTuple):
    result: str | None
    seen: int | None


@dataclass(frozen=True, slots=True)
class CallFunction:
    """Call a step's function; answered with its return value."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallInTransaction:
    """Call a step's function with a connection, and record its result in the same transaction; answered like Record."""

    id: StepId
    call: CallFunction
    written: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class SubmitChildren:
    """Submit a flow and record where its results will be, in one transaction; answered like Record."""

    id: StepId
    children: ChildFlow


@dataclass(frozen=True, slots=True)
class LookAtChildren:
    """See whether a flow that was recorded (JSON text) has ended; answered with `FoundChildren`."""

    record: str


class FoundChildren(NamedTuple):
    ends: Sequence[Sequence[Mapping[str, Any]]] | None  # for each part of the flow; None: not all have ended
    seen: int | None


@dataclass(frozen=True, slots=True)
class PauseBeforeRetry:
    """Wait before the next try."""

    seconds: float


@dataclass(frozen=True, slots=True)
class OthersIdle:
    """Wait until no other branch of the run is in the midst of a step."""


Effect: TypeAlias = (
    Load
    | Record
    | Consume
    | CallFunction
    | CallInTransaction
    | SubmitChildren
    | LookAtChildren
    | PauseBeforeRetry
    | OthersIdle
)
Steps: TypeAlias = Generator[Effect, Any, T]


class Journal(Protocol):
    """Where records are kept. Carries out all effects but calls and pauses."""

    async def perform(self, effect: Effect) -> Any: ...
    def perform_blocking(self, effect: Effect) -> Any: ...

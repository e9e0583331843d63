"""The seam between the worker's loop and whoever keeps its tasks: PostgreSQL itself, or a TaskLib server over HTTP.

    claimer, settler, membership, heartbeat        the loop: the same through every backend
               │
             Backend ──▶ PostgresBackend             worker/postgres_backend.py
                  └─▶ HttpBackend                 worker/http_backend.py

Everything is asked for many tasks at once. `DatabaseUnavailable` means that there was no answer: what was asked for may
have taken effect or not.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from tasklib.config import Config
from tasklib.events import Events
from tasklib.store.claim import Claimed, Served
from tasklib.store.settle import Completion, Failure, Leased
from tasklib.tasks.function import TaskFunction
from tasklib.worker.attempt import Attempt
from tasklib.worker.begin_limit import BeginLimit
from tasklib.worker.slots import Slots
from tasklib.worker.wakeup import Wakeup

if TYPE_CHECKING:  # which settles through a backend
    from tasklib.worker.runner import Runner

Start: TypeAlias = Callable[[list[Claimed], str, float], None]
"""Begins what was claimed, by the worker of this id, with leases until then (monotonic)."""


class Unstorable(Exception):
    """A result that is refused whoever brings it; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Registration:
    """What a worker says of itself when it comes in."""

    served: Served
    capacity: int
    version: str
    host: str
    pid: int


class Settled(NamedTuple):
    """What became of a batch of outcomes. What is in neither was not ours any more."""

    states: Mapping[str, str]
    """The new states of tasks that were ours, by id."""
    locked: AbstractSet[str] = frozenset()
    """Tasks that are ours, but another transaction has locked their rows: try them again."""


class Extended(NamedTuple):
    """What became of leases. What is in neither is lost."""

    kept: AbstractSet[str]
    locked: AbstractSet[str] = frozenset()
    """Not extended, because another transaction has locked their rows: try them again."""


class Claims(Protocol):
    """Brings tasks while there are free slots."""

    async def run(self) -> None: ...
    def stop(self) -> None:
        """No further claims. One that is under way ends, and what it brings is handed on."""


class HeartbeatConnection(Protocol):
    """What the heartbeat says and hears, from its own thread."""

    def beat(self, worker_id: str, *, load: int, draining: bool, names: Sequence[str] | None) -> bool | None:
        """Say that the worker lives; whether it was asked to drain, or None if it was declared dead."""

    def extend(self, worker_id: str, leases: Sequence[Leased], seconds: float) -> Extended:
        """Extend leases, and say which are still ours."""

    def drop(self) -> None:
        """Let go of the connection."""


class Settlements(Protocol):
    """Writes how attempts ended, and says which were still ours. `again`, after an answer that was lost: then what took
    effect the first time counts, too. `contended`: another transaction was found to hold one of these rows."""

    async def complete(
        self, worker_id: str, completions: Sequence[Completion], /, *, again: bool, contended: bool = False
    ) -> Settled: ...
    async def fail(self, worker_id: str, failures: Sequence[Failure], /, *, again: bool) -> Settled: ...
    async def release(self, worker_id: str, leases: Sequence[Leased], /, *, again: bool) -> Settled: ...
    async def stop(self, worker_id: str, stopped: Sequence[tuple[Leased, str]], /, *, again: bool) -> Settled: ...
    async def begin(self, worker_id: str, begins: Sequence[tuple[Leased, bool]]) -> set[str]:
        """Put on record that attempts begin, and which of them run at most once; the ids of those still ours. May be
        asked for again after an answer that was lost."""

    async def progress(self, worker_id: str, reports: Sequence[tuple[Leased, str]]) -> set[str]:
        """Store the newest progress; the ids of tasks whose rows another transaction has locked."""


class Backend(Settlements, Protocol):
    """One way to the tasks."""

    @property
    def knows_order(self) -> bool:
        """Whether the order in which the worker begins its tasks is known on the other side: see `may_begin`."""

    async def open(self) -> Config:
        """Come in; the settings that hold in there."""

    def serves(self, function: TaskFunction[Any, Any]) -> bool:
        """Whether such a function can run on this side of the backend."""

    def claimer(
        self,
        slots: Slots,
        wakeup: Wakeup,
        events: Events,
        *,
        served: Callable[[], Served],
        worker_id: Callable[[], str],
        start: Start,
        held: Callable[[], Sequence[Attempt]],
        begin_limit: BeginLimit,
        burst: bool,
    ) -> Claims: ...
    def jobs(
        self, runner: Runner, wakeup: Wakeup, events: Events, worker_id: Callable[[], str]
    ) -> list[Coroutine[Any, Any, None]]:
        """What goes on beside the claims for as long as the worker runs."""

    def heartbeats(self) -> HeartbeatConnection: ...

    async def register(self, id_: str, registration: Registration) -> str:
        """Join the fleet, however often it takes to be answered; the id under which we are known."""

    async def may_begin(self, worker_id: str, count: int | None) -> None:
        """Put on record how many tasks the worker may have begun without having stored their results; None: all."""

    async def deregister(self, worker_id: str) -> None:
        """Leave the fleet, holding nothing."""

    async def close(self) -> None: ...

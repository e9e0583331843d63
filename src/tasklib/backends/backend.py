"""What a worker asks of the place that keeps its tasks: PostgreSQL itself, or a TaskLib server over HTTP.

    claimer, settler, membership, heartbeat        worker/: the same with every backend
               │
             Backend ──▶ PostgresBackend           backends/postgres/
                  └────▶ HttpBackend               backends/http/, to a server, which asks backends/postgres/

Everything is asked for many tasks at once. `DatabaseUnavailable` means that there was no answer: what was asked for may
have taken effect or not.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from tasklib.config import Config
from tasklib.store.claim import Claimed, Served
from tasklib.store.durable import Consumed, NewStep, Recorded, Suspension, Written
from tasklib.store.settle import Completion, Failure, Lease, Leased
from tasklib.tasks.function import TaskFunction


@dataclass(frozen=True, slots=True)
class Registration:
    """What a worker says of itself when it joins the fleet."""

    served: Served
    capacity: int
    version: str
    host: str
    pid: int


_NONE: Mapping[str, str] = MappingProxyType({})


class Settled(NamedTuple):
    """The results of a batch of outcomes, by task id. Ids in none of these were not ours any more."""

    states: Mapping[str, str] = _NONE
    """The new states of tasks that were ours."""
    locked: AbstractSet[str] = frozenset()
    """Ours, but another transaction has locked their rows: try them again."""
    refused: Mapping[str, str] = _NONE
    """Ours, but this outcome can't be stored; why."""
    over: AbstractSet[str] = frozenset()
    """Settled before; only looked for where `again` is true."""

    def state(self, id_: str) -> str | None:
        """The new state of a task that is settled, now or by an earlier try whose answer was lost; None of others."""
        return self.states.get(id_) or ("failed" if id_ in self.over else None)

    @classmethod
    def together(cls, parts: Iterable[Settled]) -> Settled:
        """What became of several batches."""
        states: dict[str, str] = {}
        refused: dict[str, str] = {}
        locked: set[str] = set()
        over: set[str] = set()
        for part in parts:
            states.update(part.states)
            refused.update(part.refused)
            locked |= part.locked
            over |= part.over
        return cls(states, locked, refused, over)


class Kept(NamedTuple):
    """Which attempts are still ours, by task id. Ids in neither are lost."""

    ours: AbstractSet[str]
    locked: AbstractSet[str] = frozenset()
    """Ours, but nothing was written, because another transaction has locked their rows: try them again."""


class Found(NamedTuple):
    """What a claim brought."""

    tasks: list[Claimed]
    worker_id: str
    """Who claimed them. Declared dead meanwhile, the worker may have another id by now."""
    lease_deadline: float
    """When their leases end, on the monotonic clock; a little before they end in the database."""


class ClaimHost(Protocol):
    """The worker's claimer, as a backend sees it."""

    @property
    def worker_id(self) -> str: ...
    @property
    def served(self) -> Served: ...
    @property
    def has_room_to_guess(self) -> bool:
        """Whether one task more, whatever it is, leaves a slot free for a better one."""
        ...

    def are_short(self, names: Iterable[str]) -> bool:
        """Whether these functions take a few milliseconds at most, as far as is known."""
        ...

    def held(self) -> set[Lease]:
        """All that this worker knows to be its own."""
        ...

    async def in_doubt(self) -> None:
        """Called before tasks are looked for that were claimed by a statement whose answer was lost."""
        ...

    def take(self, found: Found) -> None:
        """Begin a task that was claimed aside from `Claims.claim`."""
        ...


class Claims(Protocol):
    """Brings tasks to one worker."""

    @property
    def goes_on(self) -> bool:
        """Whether the next claim resumes behind the last one: if it brings too little, that is no sign of an end."""
        ...

    @property
    def are_short(self) -> bool:
        """Whether what was claimed last is short: more of it may be claimed ahead."""
        ...

    @property
    def withdraw_after(self) -> float | None:
        """`stay_awake` is due after so many seconds without a claim; None: it isn't needed."""
        ...

    async def claim(self, limit: int) -> Found:
        """Up to so many tasks, best first."""
        ...

    async def rest(self) -> None:
        """A claim has brought nothing: wait until it is worth another one."""
        ...

    async def stay_awake(self) -> None:
        """There is work: producers need not notify."""
        ...

    def lost(self) -> None:
        """An answer was lost: tasks may be leased to this worker that it doesn't know of."""
        ...

    def stop(self) -> None:
        """No further claims. One that is under way ends soon."""
        ...


class RunningAttempts(Protocol):
    """The worker's attempts, as a backend sees them."""

    def leases(self) -> list[Leased]:
        """Those that go on."""
        ...

    def cancel(self, leases: Iterable[Leased]) -> None:
        """Their tasks were cancelled."""
        ...


class HeartbeatConnection(Protocol):
    """What the heartbeat says and hears, from its own thread."""

    def beat(self, worker_id: str, *, load: int, draining: bool, names: Sequence[str] | None) -> bool | None:
        """Say that the worker lives; whether it was asked to drain, or None if it was declared dead."""
        ...

    def extend(self, worker_id: str, leases: Sequence[Leased], seconds: float) -> Kept:
        """Extend leases, and say which are still ours."""
        ...

    def drop(self) -> None:
        """Let go of the connection."""
        ...


class Settlements(Protocol):
    """Writes how attempts ended. An outcome that can't be stored is refused alone, and the others are stored.

    `again`, after an answer that was lost: then what took effect the first time is looked for, too. `contended`:
    another transaction was found to hold one of these rows.
    """

    async def complete(
        self, worker_id: str, completions: Sequence[Completion], /, *, again: bool, contended: bool = False
    ) -> Settled: ...
    async def fail(self, worker_id: str, failures: Sequence[Failure], /, *, again: bool) -> Settled: ...
    async def release(self, worker_id: str, leases: Sequence[Leased], /, *, again: bool) -> Settled: ...
    async def stop(self, worker_id: str, stopped: Sequence[tuple[Leased, str]], /, *, again: bool) -> Settled: ...
    async def suspend(self, worker_id: str, suspensions: Sequence[Suspension], /, *, again: bool) -> Settled: ...
    def committed(self, leases: Iterable[Leased]) -> None:
        """These tasks have completed in their own transactions; what waits for them in a flow can go on."""
        ...

    async def begin(self, worker_id: str, begins: Sequence[tuple[Leased, bool]]) -> set[str]:
        """Put on record that attempts begin, and which of them run at most once; the ids of those still ours. May be
        asked for again after an answer that was lost."""
        ...

    async def progress(self, worker_id: str, reports: Sequence[tuple[Leased, str]]) -> Kept:
        """Store the newest progress."""
        ...


class StepStore(Protocol):
    """Keeps what durable tasks have on record. Every write may be asked for again after an answer that was lost."""

    async def steps_of(self, lease: Leased) -> Recorded: ...
    async def record(self, worker_id: str, steps: Sequence[NewStep]) -> tuple[dict[int, Written], Kept]:
        """Record steps: by place what is on record now, and of which tasks they are still ours."""
        ...

    async def consume(
        self, worker_id: str, lease: Leased, signal: str, *, step: str, expired: bool
    ) -> tuple[Consumed | None, Kept]:
        """Consume the next signal of a name with the step that records it."""
        ...


class Backend(Settlements, Protocol):
    """One way to the tasks."""

    @property
    def steps(self) -> StepStore | None:
        """None: durable functions can't run with this backend."""
        ...

    @property
    def knows_order(self) -> bool:
        """Whether the order in which the worker begins its tasks is known on the other side: see `may_begin`."""
        ...

    async def open(self) -> Config:
        """Connect; the settings that hold there."""
        ...

    def serves(self, function: TaskFunction[Any, Any]) -> bool:
        """Whether such a function can run with this backend."""
        ...

    def claims(self, host: ClaimHost, *, burst: bool) -> Claims: ...
    def jobs(self, running: RunningAttempts, look: Callable[[], None]) -> list[Coroutine[Any, Any, None]]:
        """What goes on beside the claims for as long as the worker runs. `look`: beat, and hear what the fleet asks."""
        ...

    def heartbeats(self) -> HeartbeatConnection: ...

    async def register(self, id_: str, registration: Registration) -> str:
        """Join the fleet, however often it takes to be answered; the id under which we are known."""
        ...

    async def may_begin(self, worker_id: str, count: int | None) -> None:
        """Record how many tasks the worker may have begun without a stored result; None: all."""
        ...

    async def deregister(self, worker_id: str) -> None:
        """Leave the fleet, holding nothing."""
        ...

    async def close(self) -> None: ...

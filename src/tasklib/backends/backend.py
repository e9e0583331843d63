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
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from tasklib.config import Config
from tasklib.store.claim import Claimed, Served
from tasklib.store.durable import Consumed, NewStep, Recorded, Suspension, Written
from tasklib.store.flows import ChildrenLook, SpawnOutcome
from tasklib.store.limits import PlaceAnswer, PlaceRequest
from tasklib.store.settle import Completion, Failure, Kept, Lease, Leased, Settled
from tasklib.tasks.function import TaskFunction


@dataclass(frozen=True, slots=True)
class Registration:
    """What a worker says of itself when it joins the fleet."""

    served: Served
    capacity: int
    version: str
    host: str
    pid: int
    deployed_at: datetime | None = None
    """When its program was deployed; None if it doesn't say."""


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
    def free_slots(self) -> int:
        """How many tasks could begin at once. Tasks behind limits are never claimed ahead."""
        ...

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

    def nudge(self) -> None:
        """A producer relies on this worker: if it waits for a slot, other workers have to be woken."""
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
    def needs_a_slot(self) -> bool:
        """Whether the last claim left tasks alone that are never claimed ahead, because no slot was free."""
        ...

    @property
    def stay_awake_after(self) -> float | None:
        """`stay_awake` is due after so many seconds without a claim; None: it isn't needed."""
        ...

    async def claim(self, limit: int) -> Found:
        """Up to so many tasks, best first."""
        ...

    async def rest(self) -> None:
        """A claim has brought nothing: wait until it is worth another one."""
        ...

    async def counted(self) -> None:
        """Wait until flows go on after the tasks that this worker has finished: a claim finds what comes next."""
        ...

    async def stay_awake(self) -> None:
        """There is work: producers need not notify; and others have to be woken for what has become free meanwhile."""
        ...

    async def pass_on(self) -> None:
        """There is no room for another task: wake others for those that this worker was woken for."""
        ...

    async def leave(self) -> None:
        """There will be no further claims: producers should rely on others."""
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


class PlaceStore(Protocol):
    """Room in limits, for blocks `with limit(...)` of running tasks. All may be asked for again after a lost answer."""

    async def take_place(self, worker_id: str, lease: Leased, asked: PlaceRequest) -> PlaceAnswer | None:
        """Take a place, or a start, of a limit; None: the task is another's by now."""
        ...

    async def leave_place(self, worker_id: str, lease: Leased, block: int) -> None:
        """Give back what a block has taken."""
        ...

    async def declare_limit(self, name: str, rule: Mapping[str, Any]) -> None:
        """Store what the code says of a limit, if this backend may."""
        ...

    async def limit_names(self) -> list[str]:
        """The names of all limits, as far as this backend may know them."""
        ...


class StepStore(Protocol):
    """What running tasks read and write: results of other tasks, and what durable tasks have on record.

    Every write may be asked for again after an answer that was lost.
    """

    async def node_results(self, source: Mapping[str, Any], after: str | None, limit: int) -> list[tuple[str, Any]]:
        """One page of the results of some nodes of a flow, each with its task's id."""
        ...

    async def spawn(self, worker_id: str, lease: Leased, tasks: str) -> SpawnOutcome | None:
        """Add tasks, a JSON array, to the one that this attempt runs; None: it is another's by now."""
        ...

    async def children_look(self, lease: Leased, flow: str) -> ChildrenLook:
        """How far the flow is that a durable task waits for."""
        ...

    async def steps_of(self, lease: Leased) -> Recorded: ...
    async def record(self, worker_id: str, steps: Sequence[NewStep]) -> tuple[dict[int, Written], Kept]:
        """Record steps: by place what is on record now, and of which tasks they are still ours."""
        ...

    async def consume(
        self, worker_id: str, lease: Leased, signal: str, *, step: str, expired: bool, approval: str | None = None
    ) -> tuple[Consumed | None, Kept]:
        """Consume the next signal of a name with the step that records it; `approval` is over with it."""
        ...


class Backend(Settlements, Protocol):
    """One way to the tasks."""

    @property
    def steps(self) -> StepStore | None:
        """None: durable functions can't run with this backend."""
        ...

    @property
    def places(self) -> PlaceStore: ...

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

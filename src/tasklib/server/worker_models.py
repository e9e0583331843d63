"""Requests and answers of the worker protocol. The keys are a contract: docs/reference/worker-protocol.md."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    Field,
    StrictBool,
    StrictInt,
    WrapValidator,
)

from tasklib.backends.backend import Registration
from tasklib.backends.postgres.remote.results import FailureReason, ResultStatus
from tasklib.backends.postgres.remote.workers import Beat
from tasklib.server.bodies import or_unreadable
from tasklib.server.request_models import Body, Name, Seconds
from tasklib.store.claim import Served
from tasklib.store.limits import PlaceOutcome, PlaceRequest
from tasklib.store.settle import Lease
from tasklib.tasks.options import is_storable

PROTOCOL = 1
"""Grows when a worker written for the last one could no longer work. What is only added doesn't change it."""
_MOST_NAMES = 10_000


def _label(value: str) -> str:
    if not is_storable(value):
        raise ValueError("must be text that PostgreSQL can hold: no NUL, no half of a surrogate pair")
    return value


Names = Annotated[list[Name], Field(max_length=_MOST_NAMES)]
Label = Annotated[str, Field(max_length=200), AfterValidator(_label)]
LeaseToken = Annotated[StrictInt, Field(ge=0, le=2**63 - 1, description="As the poll gave it with the task.")]


class RegisterBody(Body):
    """What a worker is and can do."""

    task_types: Annotated[Names, Field(min_length=1)] | None = Field(
        None, description="The names of the tasks it can run; null: it runs any."
    )
    queues: Annotated[Names, Field(min_length=1)] | None = Field(None, description="Only from these; null: from all.")
    capabilities: Names = Field(default_factory=list, description="What tasks may require of it.")
    capacity: Annotated[StrictInt, Field(ge=1, le=100_000, description="How many tasks it runs at a time.")] = 5
    name: Label | None = Field(None, description="The readable part of its id; else its host and pid.")
    version: Label = ""
    host: Label = ""
    pid: Annotated[StrictInt, Field(ge=0, le=2**31 - 1)] = 0
    deployed_at: AwareDatetime | None = Field(
        None, description="When its program was deployed: the first worker of a deploy is a mark on the charts."
    )

    def registration(self, queues: tuple[str, ...] | None) -> Registration:
        """The same, of a worker that may take from these queues."""
        served = Served(self.task_types, queues, sorted(set(self.capabilities)))
        return Registration(served, self.capacity, self.version, self.host, self.pid, self.deployed_at)


class Terms(BaseModel):
    """What every worker has to keep to."""

    protocol: int
    server_version: str
    lease_seconds: float = Field(description="How long a task is a worker's own without being extended.")
    heartbeat_interval_seconds: float
    heartbeat_timeout_seconds: float = Field(description="A worker silent for this long is dead.")
    poll_interval_ms: int = Field(description="The pause between polls of a worker that doesn't wait in them.")
    max_wait_seconds: float = Field(description="The longest `wait_seconds` that has an effect.")
    max_tasks: int = Field(description="The most tasks that one poll brings.")
    max_batch: int = Field(description="The most results, reports or leases in one request.")
    max_body_bytes: int
    max_payload_bytes: int = Field(description="The largest result, as JSON.")


class RegisterAnswer(Terms):
    """The id under which the worker is known from now on, and the terms."""

    worker_id: str
    queues: list[str] | None = Field(description="The queues it will get tasks from; null: all.")


class LeaseBody(Body):
    """One attempt's hold on a task."""

    task_id: UUID
    lease_token: LeaseToken

    @property
    def lease(self) -> Lease:
        return Lease(str(self.task_id), self.lease_token)


class PollBody(Body):
    """How many tasks a worker has room for."""

    available_capacity: Annotated[StrictInt, Field(ge=1, le=100_000)]
    free_slots: Annotated[StrictInt, Field(ge=0, le=100_000)] | None = Field(
        None, description="How many of them could begin at once: no more of them are behind limits. Null: all."
    )
    wait_seconds: Seconds = Field(0.0, description="How long to wait for a task if there is none.")
    capabilities: Names | None = Field(None, description="Its capabilities at this moment; null: as registered.")
    holding: list[LeaseBody] | None = Field(
        None, description="All leases it holds. Other tasks that are leased to it are handed out again."
    )
    reports_begin: StrictBool = Field(
        False, description="It records the start of tasks with a `crash_count` itself, with `begin`."
    )


class ClaimedTask(BaseModel):
    """A task that is the worker's own until its lease ends."""

    task_id: UUID
    lease_token: int
    task_type: str
    parameters: dict[str, Any]
    attempt: int
    max_attempts: int
    timeout_seconds: int | None
    crash_count: int
    priority: int
    effective_priority: int
    queue: str
    trace_id: str = Field(description="The trace it was submitted in, else one of its own.")
    trace_context: dict[str, Any] | None


class PollAnswer(BaseModel):
    """Tasks, best first; none if there was none in time."""

    tasks: list[ClaimedTask]
    waited_seconds: float = Field(description="Between the request's arrival and the beginning of the leases.")
    lease_seconds: float


class WorkerStatus(StrEnum):
    """What a worker can say of itself."""

    ACTIVE = "active"
    DRAINING = "draining"


class HeartbeatBody(Body):
    """The worker lives."""

    current_load: Annotated[StrictInt, Field(ge=0, le=2**31 - 1)] | None = Field(
        None, description="How many tasks it runs."
    )
    status: WorkerStatus = WorkerStatus.ACTIVE
    task_types: Annotated[Names, Field(min_length=1)] | None = Field(
        None, description="The new names, if they have changed."
    )
    running: list[LeaseBody] = Field(default_factory=list, description="The leases to extend.")
    cancelling: list[UUID] = Field(default_factory=list, description="Tasks that it already knows to be cancelled.")
    wait_seconds: Seconds = Field(0.0, description="How long to wait for a change if there is none.")

    def beat(self, wait_seconds: float) -> Beat:
        """The same, with no longer a wait than this."""
        return Beat(
            load=self.current_load,
            drains=self.status is WorkerStatus.DRAINING,
            names=self.task_types,
            running=[body.lease for body in self.running],
            cancelling=frozenset(map(str, self.cancelling)),
            wait_seconds=wait_seconds,
        )


class LeaseAnswer(BaseModel):
    """One attempt's hold on a task."""

    task_id: str
    lease_token: int


class HeartbeatAnswer(BaseModel):
    """What the worker should know."""

    acknowledged: bool = True
    drain: bool = Field(description="It was asked to take no more tasks, finish what it has, and end.")
    cancel: list[LeaseAnswer] = Field(description="Attempts of its own that were cancelled, but for `cancelling`.")
    lost: list[LeaseAnswer] = Field(description="Those of `running` that are not its own any more.")
    locked: list[LeaseAnswer] = Field(
        default=[],
        description="Those of `running` that were not extended, as another transaction holds their rows: try again.",
    )


class ResultBody(LeaseBody):
    """How one attempt ended."""

    status: ResultStatus
    result: Any = Field(None, description="completed: any JSON.")
    error: str | None = Field(None, description="failed, cancelled: for people; a traceback, say.")
    reason: FailureReason = Field(FailureReason.ERROR, description="failed: why.")
    retriable: StrictBool = Field(True, description="failed: false gives the task up at once.")
    retry_in_seconds: Seconds | None = Field(None, description="failed: the wait before the retry; null: the usual.")
    limit: str | None = Field(
        None,
        max_length=1000,
        description="failed, throttled: the limit that begins nothing for that time; null: those of the task. U+0002 "
        "and a key may follow the name.",
    )


class ResultsBody(Body):
    """How many attempts ended. Each is judged by itself."""

    results: Annotated[list[Annotated[ResultBody, WrapValidator(or_unreadable)]], Field(min_length=1)]


class ResultAnswer(BaseModel):
    """What became of one result."""

    task_id: UUID | None = Field(description="null for a result in a batch whose id could not be read.")
    accepted: bool
    status: str | None = Field(description="The task's state after it, if it was accepted.")
    code: str | None = Field(
        None, description="stale_attempt, already_settled, row_locked or result_not_storable, if not."
    )
    detail: str | None = Field(None, description="Why not; in a batch, of one that can't be read, with its place.")


class ResultsAnswer(BaseModel):
    """One for each result, in the same order."""

    results: list[ResultAnswer]


class BeginBody(LeaseBody):
    """One attempt is about to begin."""

    at_most_once: StrictBool = Field(False, description="If the worker is lost from here on, the task is given up.")


class BeginsBody(Body):
    """Many are."""

    tasks: Annotated[list[BeginBody], Field(min_length=1)]


class BeginAnswer(BaseModel):
    """Which beginnings are on record now: these may begin."""

    begun: list[LeaseAnswer]
    lost: list[LeaseAnswer] = Field(description="Those that are not the worker's own any more.")


class ProgressBody(LeaseBody):
    """How far one attempt is: any JSON."""

    progress: Any


class ProgressesBody(Body):
    """How far many are."""

    reports: Annotated[list[ProgressBody], Field(min_length=1)]


class RefusedProgress(LeaseAnswer):
    """A report that can't be stored. Its attempt goes on."""

    detail: str


class ProgressAnswer(BaseModel):
    """Which were not stored; all others were."""

    acknowledged: bool
    lost: list[LeaseAnswer] = Field(description="Those that are not the worker's own any more.")
    refused: list[RefusedProgress] = Field(description="Those whose `progress` can't be stored.")


Block = Annotated[
    StrictInt, Field(ge=1, le=2**31 - 1, description="A number of the worker's own for each block of an attempt.")
]


class PlaceBody(LeaseBody):
    """A part of a running task needs room in a limit."""

    limit: Name
    key: Annotated[str, Field(max_length=10_000), AfterValidator(_label)] = ""
    cost: Annotated[StrictInt, Field(ge=1, le=2**31 - 1, description="How many starts of a rate it uses.")] = 1
    block: Block
    nested: Annotated[
        StrictInt, Field(ge=0, le=100_000, description="How many blocks of this limit and key are around this one.")
    ] = 0

    @property
    def request(self) -> PlaceRequest:
        return PlaceRequest(self.limit, self.key, self.cost, self.block, self.nested)


class PlaceTakenAnswer(BaseModel):
    """Whether there was room."""

    outcome: PlaceOutcome = Field(
        description="taken; full (ask again after a pause); later (after `retry_in_seconds`); never (the task itself "
        "holds all places); unknown (no such limit)."
    )
    retry_in_seconds: float | None


class PlaceLeftBody(LeaseBody):
    """A block has ended."""

    block: Block


class PlaceLeftAnswer(BaseModel):
    """It holds nothing any more."""

    acknowledged: bool

"""Events of workers and clients, for subscribers: the terminal, the log, metrics, tests. One class per event.

`shard`: the number of the shard that it is about, of a worker over several.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """The worker is connected and begins to claim."""

    worker_id: str
    names: tuple[str, ...]
    queues: tuple[str, ...] | None
    concurrency: int
    shards: tuple[int, ...] = ()
    """The numbers of its shards, if it is configured with shards."""


@dataclass(frozen=True, slots=True)
class WorkerDraining:
    """No new claims; running tasks finish, or are released when `now` is set."""

    worker_id: str
    running: int
    now: bool


@dataclass(frozen=True, slots=True)
class WorkerStopped:
    """The worker has released or settled all its tasks."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class TasksClaimed:
    """One claim that found something."""

    asked: int
    count: int


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """An attempt begins."""

    id: str
    name: str
    attempt: int
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """An attempt is over and its outcome is stored. `state` is the task's new state."""

    id: str
    name: str
    attempt: int
    state: str
    seconds: float
    error: str | None = None
    retry_in_seconds: float | None = None
    max_retries: int | None = None
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class ResultRefused:
    """A stale write: another attempt holds the lease by now, so the outcome of this one was dropped."""

    id: str
    name: str
    token: int
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The lease of a running attempt ran out or was taken; the attempt is stopped."""

    id: str
    name: str
    token: int
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class SlotStuck:
    """The attempt ran out of time but its thread (or stubborn coroutine) goes on; it keeps its slot until it ends."""

    id: str
    name: str
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class TaskNotBegun:
    """The worker could not call the function, for a reason of its own; the task goes back as it was."""

    id: str
    name: str
    reason: str
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class ChildrenSpawned:
    """Child processes can't be forked from a template here; each is a new interpreter, which takes longer to start."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeasesRescued:
    """Attempts of lost workers were ended; (id, name, new state) of each."""

    tasks: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class WorkerRenewed:
    """The worker was declared dead although it is alive; it has dropped its tasks and continues under a new id."""

    old_id: str
    worker_id: str


@dataclass(frozen=True, slots=True)
class LeadershipTaken:
    """This worker leads now, in this term."""

    term: int
    shard: int | None = None


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """This worker no longer leads."""

    term: int
    shard: int | None = None


@dataclass(frozen=True, slots=True)
class WorkersDied:
    """The leader declared silent workers dead."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OverdueFailed:
    """The leader failed attempts long past their timeout; (id, name, new state) of each."""

    tasks: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class TasksDeleted:
    """The leader deleted finished tasks that were past their time."""

    state: str
    count: int


@dataclass(frozen=True, slots=True)
class SchedulesSynced:
    """The worker stored the schedules of its task functions; their names, by what became of them.

    `refused`: a deploy that is not older has another version, or a schedule of this name was made at run time.
    """

    created: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    refused: tuple[str, ...]
    retired: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlotsFired:
    """The leader made the tasks of slots that were due; (schedule, id of the task, slot) of each."""

    tasks: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class SlotsSkipped:
    """Slots of a schedule passed without a run: `count` of them, from the first to the last."""

    schedule: str
    reason: str
    count: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class DutyFailed:
    """One round of a duty beside the work failed (a sweep, the election, the counts); it is tried again."""

    duty: str
    reason: str
    shard: int | None = None


@dataclass(frozen=True, slots=True)
class DatabaseAwaited:
    """The worker starts, can't reach its database (or server), and waits for it for up to so many seconds."""

    reason: str
    seconds: float
    shard: int | None = None


@dataclass(frozen=True, slots=True)
class NotificationsMissing:
    """LISTEN succeeded, but notifications don't arrive: until they do, the worker finds new tasks by polling."""

    reason: str
    poll_seconds: float
    shard: int | None = None


@dataclass(frozen=True, slots=True)
class DatabaseLost:
    """A connection broke; the worker tries again until it is back."""

    purpose: str
    reason: str
    shard: int | None = None


@dataclass(frozen=True, slots=True)
class BreakerMoved:
    """The circuit breaker of a task name is `open`, `probing` or `closed` now. `attempts`: those it opened for."""

    name: str
    state: str
    attempts: int | None
    failures: int | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class DatabaseBack:
    """A broken connection works again."""

    purpose: str
    shard: int | None = None


@dataclass(frozen=True, slots=True)
class Woken:
    """An idle worker claims again. `by` is "notify", "poll" or "due"."""

    by: str


@dataclass(frozen=True, slots=True)
class TaskSubmitted:
    """A client has submitted a task; in the caller's transaction, it counts once that is committed."""

    id: str
    name: str
    queue: str
    by: str
    is_new: bool = True
    """False: its key belongs to a task that was there before, and this is that task's id."""
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A client has cancelled a task. `state`: its new state; `running` if its worker was requested to stop it."""

    id: str
    state: str
    by: str


@dataclass(frozen=True, slots=True)
class TaskReplayed:
    """A client has let a finished task run again from the start."""

    id: str
    by: str


Event: TypeAlias = (
    WorkerStarted
    | WorkerDraining
    | WorkerStopped
    | TasksClaimed
    | TaskStarted
    | TaskEnded
    | ResultRefused
    | LeaseLost
    | SlotStuck
    | TaskNotBegun
    | ChildrenSpawned
    | LeasesRescued
    | WorkerRenewed
    | LeadershipTaken
    | LeadershipLost
    | WorkersDied
    | OverdueFailed
    | TasksDeleted
    | SchedulesSynced
    | SlotsFired
    | SlotsSkipped
    | BreakerMoved
    | DutyFailed
    | DatabaseAwaited
    | NotificationsMissing
    | DatabaseLost
    | DatabaseBack
    | Woken
    | TaskSubmitted
    | CancelRequested
    | TaskReplayed
)


class Events:
    """Passes events to subscribers, in order, where they happen: a worker's on its loop.

    Claims, starts, completions and wake-ups are routine: there may be thousands a second, so they are only made if
    `events.routine` says that they have a subscriber.
    """

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Event], None]] = []
        self._routine_subscribers: list[Callable[[Event], None]] = []
        self.routine = False
        """Whether routine events have a subscriber."""

    def subscribe(self, subscriber: Callable[[Event], None], *, routine: bool = True) -> None:
        """`routine=False`: only events out of the ordinary."""
        self._subscribers.append(subscriber)
        if routine:
            self._routine_subscribers.append(subscriber)
            self.routine = True

    def unsubscribe(self, subscriber: Callable[[Event], None]) -> None:
        """Remove a subscriber. Unknown ones are ignored."""
        for subscribers in (self._subscribers, self._routine_subscribers):
            if subscriber in subscribers:
                subscribers.remove(subscriber)
        self.routine = bool(self._routine_subscribers)

    def emit(self, event: Event) -> None:
        if not self._subscribers and isinstance(event, DutyFailed | DatabaseAwaited | NotificationsMissing):
            # A program that subscribes to nothing finds trouble where it looks for it.
            logging.getLogger("tasklib").warning("%s", event)
        self._tell(self._subscribers, event)

    def emit_routine(self, event: Event) -> None:
        self._tell(self._routine_subscribers, event)

    def _tell(self, subscribers: list[Callable[[Event], None]], event: Event) -> None:
        for subscriber in subscribers:
            try:
                subscriber(event)
            except Exception:
                # A subscriber must not disturb the work; nor may a filter or handler of the program's own logging.
                with suppress(Exception):
                    logging.getLogger("tasklib").exception("a subscriber to worker events failed on %r", event)


client_events = Events()
"""What the clients of this program do: TaskSubmitted, CancelRequested, TaskReplayed. All of it is routine."""

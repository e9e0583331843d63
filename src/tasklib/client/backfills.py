"""Backfills: the slots of a stretch that has passed are run, all at once or one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal, get_args
from uuid import UUID

import psycopg

from tasklib.client import validation
from tasklib.client.effects import Call
from tasklib.client.identity import Identity
from tasklib.db.failures import MOST_CONFLICTS
from tasklib.db.query import Query
from tasklib.errors import DatabaseUnavailable, InvalidOption
from tasklib.schedules import check_year, slots_between
from tasklib.store import schedules
from tasklib.store.audit import Action
from tasklib.store.flows import NewFlow, NewGate
from tasklib.store.schedules import ScheduleInfo
from tasklib.tasks.ids import new_id, new_ids
from tasklib.tasks.options import Options, require_aware

BACKFILL_LIMIT = 1000
MOST_BACKFILLED = 10_000
_LOWEST_PRIORITY = -10
_SETTLED = {"kind": "settled"}

BackfillOverlap = Literal["allow", "one_by_one"]
"""What is done about runs at the same time: nothing, or each waits until the one before it has ended."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """What a backfill did, or would do."""

    count: int
    """How many slots there are in the stretch."""
    slots: list[datetime]
    task_ids: list[UUID]
    """The tasks that are new, in the order of their slots; none of a dry run."""
    overlap: BackfillOverlap = "allow"
    has_task: int = 0
    """How many of the slots had a task before: these are not run again."""
    flow: UUID | None = None
    """With `one_by_one`: the flow that the tasks belong to. Cancelling it ends the backfill."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A backfill that was checked."""

    schedule: ScheduleInfo
    slots: list[datetime]
    overlap: BackfillOverlap
    priority: int
    details: dict[str, Any]
    """For the audit."""


def check_overlap(overlap: object) -> None:
    if overlap is not None and overlap not in get_args(BackfillOverlap):
        raise InvalidOption(f"overlap of a backfill is 'allow' or 'one_by_one', not {overlap!r}.")


def checked(
    known: ScheduleInfo,
    start: datetime,
    end: datetime,
    overlap: BackfillOverlap | None,
    limit: int,
    priority: int | None,
) -> Wanted:
    """The slots of a stretch, and how they are to be run."""
    lowered = max(known.template["priority"] - 10, _LOWEST_PRIORITY) if priority is None else priority
    Options(priority=lowered)  # checks it
    slots = _slots(known, start, end, limit)
    chosen = overlap or ("allow" if known.schedule.overlap == "allow" else "one_by_one")
    return Wanted(known, slots, chosen, lowered, {"start": start, "end": end, "overlap": chosen})


def show(wanted: Wanted) -> Call[Backfill]:
    """What it would do."""
    taken: set[datetime] = yield schedules.taken_slots(wanted.schedule.name, wanted.slots)
    return Backfill(len(wanted.slots), wanted.slots, [], wanted.overlap, len(taken))


def run(wanted: Wanted, identity: Identity, shard: int) -> Call[Backfill]:
    """Make the tasks of those slots that have none."""
    name = wanted.schedule.name
    for _ in range(MOST_CONFLICTS):
        taken: set[datetime] = yield schedules.taken_slots(name, wanted.slots)
        free = [slot for slot in wanted.slots if slot not in taken]
        flow = _chain(name, free, identity, shard) if wanted.overlap == "one_by_one" and free else None
        try:
            made: list[UUID] = yield _statement(wanted, new_ids(len(free), shard), free, flow, identity)
        except psycopg.errors.UniqueViolation:  # another backfill, or the leader, made the task of a slot meanwhile
            continue
        if made or flow is None:
            count = len(wanted.slots)
            return Backfill(count, wanted.slots, made, wanted.overlap, count - len(made), flow and flow.id)
        if (task_id := (yield schedules.running(name))) is not None:
            raise InvalidOption(
                f"a run of {name!r} is under way, task {task_id}, and overlap is 'one_by_one'. Backfill when it has "
                "ended, or with overlap='allow'."
            )
    raise DatabaseUnavailable(f"slots of {name!r} keep being run by other programs. Try again.")


def _statement(
    wanted: Wanted, ids: Sequence[UUID], slots: Sequence[datetime], flow: NewFlow | None, identity: Identity
) -> Query[list[UUID]]:
    runs = list(zip(ids, slots, strict=True))
    if flow is not None:
        return schedules.run_one_by_one(
            wanted.schedule.name,
            runs,
            flow,
            by=identity.actor,
            priority=wanted.priority,
            details=wanted.details,
        )
    return schedules.run(
        wanted.schedule.name,
        runs,
        by=identity.actor,
        action=Action.BACKFILL_SCHEDULE,
        priority=wanted.priority,
        submitted_by=identity.submitted_by,
        details=wanted.details,
    )


def _chain(name: str, slots: Sequence[datetime], identity: Identity, shard: int) -> NewFlow:
    """A flow whose tasks wait for each other: a gate for each slot, in their order, and the one of the flow.

    The first gate is for the runs of the schedule that have not begun yet: the statement counts them.
    """
    nodes = [slot.isoformat() for slot in slots]
    gates = [
        NewGate(new_id(), _SETTLED, nodes[number - 1 : number] if number else [], 1 if number else 0, [node])
        for number, node in enumerate(nodes)
    ]
    end = NewGate(new_id(), _SETTLED, (), len(slots), kind="flow")
    return NewFlow(new_id(shard), f"backfill of {name}", [*gates, end], identity.submitted_by)


def _slots(known: ScheduleInfo, start: datetime, end: datetime, limit: int) -> list[datetime]:
    for which, moment in (("start", start), ("end", end)):
        require_aware(which, moment)
        check_year(which, moment)
    validation.check_limit(limit, MOST_BACKFILLED)
    if start > end:
        raise InvalidOption(f"start ({start}) is later than end ({end}). Exchange them.")
    if end > known.read_at:
        raise InvalidOption(f"end ({end}) has not passed yet; the schedule itself runs its future slots.")
    after = start.astimezone(UTC) - timedelta.resolution
    found = list(islice(slots_between(known.schedule, after, end), limit + 1))
    if len(found) > limit:
        raise InvalidOption(
            f"there are more than {limit:,} slots between start and end. Choose a shorter stretch, "
            f"or a limit of up to {MOST_BACKFILLED:,}."
        )
    return found

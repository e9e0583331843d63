"""Schedules as they are stored: made, found, changed, paused, retired, and run by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from tasklib.db.query import Query, Rows
from tasklib.errors import InvalidOption
from tasklib.schedules import Schedule, Skipped
from tasklib.store.audit import Action, audited
from tasklib.store.firing import skips_as_json
from tasklib.store.flows import NewFlow, gates_as_json

Source = Literal["code", "api"]
CHANGED = "schedule"
"""The notification that lets the leader look for slots at once."""
LAST_RUNS = 10
"""Of so many runs the states are shown with a schedule."""


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule as the database has it."""

    read_at: datetime
    """By the database's clock."""
    name: str
    task: str
    """The name of its task function."""
    spec: dict[str, Any]
    """`schedule` as it is stored."""
    template: dict[str, Any]
    """What each of its tasks is submitted with: queue, kwargs, priority, max_retries, timeout_seconds, tags, ..."""
    source: Source
    """`code` if a program declares it with @task(schedule=...), `api` if it was made at run time."""
    revision: int
    fired: int
    """Slots that were run."""
    skipped: int
    """Slots that were not."""
    created_at: datetime
    changed_at: datetime
    next_slot: datetime | None
    last_slot: datetime | None
    """The newest slot that was run or skipped."""
    waiting_slot: datetime | None
    """A slot that is run when the run before it is finished."""
    last_task: UUID | None
    paused_at: datetime | None
    paused_by: str | None
    pause_note: str | None
    resumed_at: datetime | None
    retired_at: datetime | None
    """When it was found to have left the code. It is not run any more."""
    module: str | None
    deployed_at: datetime | None
    last_runs: list[str]
    """The states of its last runs, the newest first."""

    @property
    def schedule(self) -> Schedule:
        """Its rule and policies; InvalidOption if this version can't read them, or its tzdata hasn't got the zone."""
        return Schedule.from_json(self.spec)

    @property
    def unreadable(self) -> str | None:
        """Why `schedule` can't be read; None if it can."""
        try:
            self.schedule  # noqa: B018 - reading it is the check
        except InvalidOption as e:
            return str(e)
        return None

    @property
    def state(self) -> Literal["active", "paused", "retired", "ended"]:
        """`retired`: it has left the code. `ended`: it has no slot any more."""
        if self.retired_at is not None:
            return "retired"
        if self.paused_at is not None:
            return "paused"
        return "active" if self.next_slot is not None else "ended"

    @property
    def is_active(self) -> bool:
        """True if it runs when its time comes."""
        return self.state == "active"


@dataclass(frozen=True, slots=True)
class Declared:
    """A schedule as a program or an operator wants it."""

    name: str
    task: str
    schedule: Schedule
    template: Mapping[str, Any]
    module: str | None = None
    """Of a schedule in code."""
    deployed_at: datetime | None = None

    @property
    def source(self) -> Source:
        return "api" if self.deployed_at is None else "code"


def now() -> Query[datetime]:
    """The database's clock."""
    return Query("now", {}, lambda rows: rows[0][0], repeatable=True)


def get(name: str) -> Query[ScheduleInfo | None]:
    parameters = {"name": name, "runs": LAST_RUNS}
    return Query("schedule_get", parameters, lambda rows: ScheduleInfo(*rows[0]) if rows else None, repeatable=True)


def page(
    *,
    limit: int,
    after: str | None = None,
    task: str | None = None,
    source: str | None = None,
    paused: bool | None = None,
    retired: bool | None = None,
    text: str | None = None,
) -> Query[list[ScheduleInfo]]:
    """Schedules in the order of their names; `text` is part of the name or of the task function's."""
    parameters = {
        "limit": limit,
        "after": after,
        "task": task,
        "source": source,
        "paused": paused,
        "retired": retired,
        "text": text,
        "runs": LAST_RUNS,
    }
    return Query("schedule_list", parameters, _infos, prepare=False, repeatable=True)


def create(declared: Declared, next_slot: datetime | None, *, by: str) -> Query[bool]:
    """Reads False if the name is taken."""
    parameters = {**_stored(declared), "source": declared.source, "next_slot": next_slot}
    return audited(
        "schedule_create",
        parameters,
        bool,
        by=by,
        action=Action.CREATE_SCHEDULE,
        target=declared.name,
        details=_details(declared),
    )


def change(
    known: ScheduleInfo, declared: Declared, next_slot: datetime | None, lost: Sequence[Skipped], *, by: str
) -> Query[bool]:
    """Reads False if the schedule has changed since it was read. A deploy brings a retired one back."""
    revive = declared.source == "code"
    parameters = {**_stored(declared), **_moved(known, next_slot, lost), "resume": False, "revive": revive}
    return audited(
        "schedule_change",
        parameters,
        bool,
        by=by,
        action=Action.CHANGE_SCHEDULE,
        target=known.name,
        details=_details(declared),
    )


def pause(name: str, note: str | None, *, by: str) -> Query[bool]:
    """Reads False if it is paused already with this note, or not there."""
    parameters = {"name": name, "note": note}
    return audited(
        "schedule_pause",
        parameters,
        bool,
        by=by,
        action=Action.PAUSE_SCHEDULE,
        target=name,
        details={"note": note},
    )


def resume(known: ScheduleInfo, next_slot: datetime | None, lost: Sequence[Skipped], *, by: str) -> Query[bool]:
    """Reads False if the schedule has changed since it was read."""
    unchanged = dict.fromkeys(("task", "spec", "template", "module", "deployed_at"))
    moved = _moved(known, next_slot, lost)
    parameters = {**unchanged, **moved, "resume": True, "revive": False, "message": CHANGED}
    return audited("schedule_change", parameters, bool, by=by, action=Action.RESUME_SCHEDULE, target=known.name)


def delete(name: str, *, by: str) -> Query[bool]:
    """Reads False if it is not there."""
    return audited("schedule_delete", {"name": name}, bool, by=by, action=Action.DELETE_SCHEDULE, target=name)


def run(
    name: str,
    runs: Sequence[tuple[UUID, datetime | None]],
    *,
    by: str,
    action: Action,
    priority: int | None = None,
    submitted_by: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> Query[list[UUID]]:
    """Make tasks with these ids for these slots; reads those that are new."""
    parameters = {
        "name": name,
        "runs": json.dumps([{"id": id_.hex, "slot": slot and slot.isoformat()} for id_, slot in runs]),
        "priority": priority,
        "submitted_by": submitted_by,
    }
    return audited("schedule_run", parameters, _ids, by=by, action=action, target=name, details=details)


def run_one_by_one(
    name: str,
    runs: Sequence[tuple[UUID, datetime]],
    flow: NewFlow,
    *,
    by: str,
    priority: int,
    details: Mapping[str, Any],
) -> Query[list[UUID]]:
    """Make tasks that wait for each other: each at its gate, in the order of their slots; reads their ids.

    None are made while a run of the schedule is under way. A unique violation if one of the slots has a task.
    """
    *gates, end = flow.gates
    following = [[str(gate.id)] for gate in gates[1:]] + [[]]
    chained = [
        {
            "id": id_.hex,
            "slot": slot.isoformat(),
            "node": gate.waiters[0],
            "gate": str(gate.id),
            "reports_to": [*after, str(end.id)],
        }
        for (id_, slot), gate, after in zip(runs, gates, following, strict=True)
    ]
    parameters = {
        "name": name,
        "flow": str(flow.id),
        "flow_name": flow.name,
        "first_gate": str(gates[0].id),
        "gates": gates_as_json(flow.gates),
        "runs": json.dumps(chained),
        "priority": priority,
        "submitted_by": flow.submitted_by,
    }
    return audited(
        "schedule_run_one_by_one",
        parameters,
        _ids,
        by=by,
        action=Action.BACKFILL_SCHEDULE,
        target=name,
        details={**details, "flow": str(flow.id)},
    )


def taken_slots(name: str, slots: Sequence[datetime]) -> Query[set[datetime]]:
    """Which of these slots have a task."""
    parameters = {"name": name, "slots": list(slots)}
    return Query("schedule_taken", parameters, lambda rows: {row[0] for row in rows}, prepare=False, repeatable=True)


def running(name: str) -> Query[str | None]:
    """The id of a run that is under way."""
    return Query("schedule_running", {"name": name}, lambda rows: rows[0][0] if rows else None, repeatable=True)


class ScheduleRun(NamedTuple):
    """The task of a slot."""

    schedule: str
    id: str
    slot: datetime
    state: str
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None


def last_runs(names: Sequence[str], limit: int) -> Query[list[ScheduleRun]]:
    """The last runs of slots, for each schedule the newest first."""
    parameters = {"names": list(names), "limit": limit}
    return Query("schedule_runs", parameters, lambda rows: [ScheduleRun(*row) for row in rows], repeatable=True)


def last_skips(name: str, limit: int) -> Query[list[Skipped]]:
    """The slots that were not run, the newest first."""
    parameters = {"name": name, "limit": limit}
    return Query("schedule_skipped", parameters, lambda rows: [Skipped(*row) for row in rows], repeatable=True)


class ComingSchedule(NamedTuple):
    """A schedule that runs soon."""

    name: str
    spec: dict[str, Any]


def coming(within_seconds: float, limit: int) -> Query[list[ComingSchedule]]:
    """The schedules that run within a time, the soonest first."""
    parameters = {"within": float(within_seconds), "limit": limit}
    return Query("schedule_coming", parameters, lambda rows: [ComingSchedule(*row) for row in rows], repeatable=True)


class ScheduleCounts(NamedTuple):
    """How many schedules there are."""

    active: int
    paused: int
    retired: int
    late: int
    """Active ones whose slot should have been run."""


def counts(late_seconds: float) -> Query[ScheduleCounts]:
    parameters = {"late": float(late_seconds)}
    return Query("schedule_counts", parameters, lambda rows: ScheduleCounts(*rows[0]), repeatable=True)


class SlotFate(NamedTuple):
    """What became of a slot."""

    task_id: str | None
    state: str | None
    skipped: str | None
    """Why it was skipped."""
    has_leader: bool


def slot_fate(name: str, slot: datetime | None) -> Query[SlotFate]:
    parameters = {"name": name, "slot": slot}
    return Query("schedule_slot", parameters, lambda rows: SlotFate(*rows[0]), repeatable=True)


def in_code() -> Query[list[ScheduleInfo]]:
    """All schedules that programs declare, the retired ones too."""
    unlimited = dict.fromkeys(("after", "task", "paused", "retired", "text", "limit"))
    parameters = {"runs": 0, "source": "code", **unlimited}
    return Query("schedule_list", parameters, _infos, prepare=False, repeatable=True)


def retire(names: Sequence[str], modules: Sequence[str] | None, deployed_at: datetime, *, by: str) -> Query[list[str]]:
    """Retire what an older deploy had in these modules (None: in any), except these names; reads which."""
    parameters = {
        "names": list(names),
        "modules": None if modules is None else list(modules),
        "deployed_at": deployed_at,
    }
    return audited(
        "schedule_retire", parameters, lambda rows: [row[0] for row in rows], by=by, action=Action.RETIRE_SCHEDULES
    )


def deployed(unchanged: Mapping[str, int], deployed_at: datetime) -> Query[list[str]]:
    """Say that these, in these revisions, are the same in a newer deploy; reads which still are."""
    parameters = {
        "names": list(unchanged),
        "revisions": list(unchanged.values()),
        "deployed_at": deployed_at,
    }
    return Query("schedule_deployed", parameters, lambda rows: [row[0] for row in rows])


def _stored(declared: Declared) -> dict[str, Any]:
    return {
        "name": declared.name,
        "task": declared.task,
        "spec": json.dumps(declared.schedule.to_json()),
        "template": json.dumps(declared.template),
        "module": declared.module,
        "deployed_at": declared.deployed_at,
        "message": CHANGED,
    }


def _details(declared: Declared) -> dict[str, Any]:
    """For the audit, which is not for arguments and tags."""
    spec = declared.schedule.to_json()
    return {"task": declared.task, **{name: value for name, value in spec.items() if name not in ("args", "tags")}}


def _moved(known: ScheduleInfo, next_slot: datetime | None, lost: Sequence[Skipped]) -> dict[str, Any]:
    return {
        "name": known.name,
        "revision": known.revision,
        "read_slot": known.next_slot,
        "read_waiting": known.waiting_slot,
        "next_slot": next_slot,
        "last_slot": max((skip.last for skip in lost), default=None),
        "lost": sum(skip.count for skip in lost),
        "skips": json.dumps(skips_as_json(lost, follows=known.next_slot)),
    }


def _infos(rows: Rows) -> list[ScheduleInfo]:
    return [ScheduleInfo(*row) for row in rows]


def _ids(rows: Rows) -> list[UUID]:
    return [UUID(row[0]) for row in rows]

"""Requests and answers about schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StrictBool, StrictInt

from tasklib.client.backfills import BACKFILL_LIMIT, MOST_BACKFILLED, BackfillOverlap
from tasklib.client.schedules import Preview
from tasklib.schedules import describe
from tasklib.server.redaction import Redaction
from tasklib.server.request_models import Body, Name, Text
from tasklib.store.schedules import ScheduleInfo

MOST_SYNCED = 10_000
_RULE = {"cron": ["0 3 * * *"], "timezone": "Europe/Berlin", "overlap": "skip", "args": {"full": True}}
_ID = "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f"
_MOMENT = "2026-05-21T01:00:00Z"
_SLOT = {"utc": _MOMENT, "local": "2026-05-21T03:00:00+02:00", "note": None}
_WORDS = "At 03:00 every day, Europe/Berlin; missed slots are not run."
_SCHEDULE = {
    "name": "nightly",
    "task_type": "report",
    "description": _WORDS,
    "schedule": _RULE,
    "source": "api",
    "state": "active",
    "queue": "default",
    "priority": 0,
    "parameters": {"full": True},
    "next_slot": "2026-05-22T01:00:00Z",
    "last_slot": _MOMENT,
    "last_task": _ID,
    "last_runs": ["completed"],
    "fired": 41,
    "skipped": 1,
    "paused_at": None,
    "paused_by": None,
    "pause_note": None,
    "created_at": _MOMENT,
    "changed_at": _MOMENT,
    "read_at": _MOMENT,
    "revision": 3,
    "waiting_slot": None,
    "resumed_at": None,
    "retired_at": None,
    "module": None,
    "deployed_at": None,
    "max_retries": 3,
    "timeout_seconds": None,
    "tags": {},
    "required_capabilities": [],
    "payload_version": None,
}
_FIELDS = "The fields of `Schedule`: cron, every (seconds), timezone, exclude, catch_up, overlap, jitter, args, ..."


def _examples(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": list(examples)})


def _shown(example: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [example]})


class CreateScheduleBody(Body):
    """A schedule to make."""

    model_config = _examples({"name": "nightly", "task_type": "report", "schedule": _RULE})

    name: Name
    task_type: Name
    schedule: dict[str, Any] = Field(description=_FIELDS)


class DeclaredScheduleBody(CreateScheduleBody):
    """A schedule that a program declares."""

    model_config = _examples({"name": "nightly", "task_type": "report", "schedule": _RULE, "module": "app.tasks"})

    module: Name = Field(description="Where its task function is defined.")


class SyncSchedulesBody(Body):
    """All schedules that a program declares."""

    model_config = _examples(
        {
            "deployed_at": _MOMENT,
            "modules": ["app.tasks"],
            "schedules": [{"name": "nightly", "task_type": "report", "schedule": _RULE, "module": "app.tasks"}],
        }
    )

    deployed_at: AwareDatetime = Field(description="Only a newer deploy changes stored schedules.")
    modules: list[Name] | None = Field(
        description="The program's modules: schedules that an older deploy had in these and that are not listed are "
        "retired. Null: any.",
        max_length=MOST_SYNCED,
    )
    schedules: list[DeclaredScheduleBody] = Field(max_length=MOST_SYNCED)


class ChangeScheduleBody(Body):
    """The fields to change."""

    model_config = _examples({"schedule": {"cron": ["0 4 * * *"]}})

    schedule: dict[str, Any] = Field(description=_FIELDS, min_length=1)
    replace: StrictBool = Field(False, description="These are all fields: the others get their defaults.")


class PreviewBody(Body):
    """A schedule that need not be stored."""

    model_config = _examples({"schedule": _RULE})

    schedule: dict[str, Any] = Field(description=_FIELDS)
    count: StrictInt = Field(20, ge=1, le=200, description="How many slots.")


class PauseScheduleBody(Body):
    """A pause."""

    model_config = _examples({"note": "the disk is full"}, {})

    note: Text | None = Field(None, max_length=1000, description="The reason, shown to operators.")


class BackfillBody(Body):
    """A stretch that has passed."""

    model_config = _examples({"start": "2026-03-01T00:00:00Z", "end": "2026-03-07T00:00:00Z", "dry_run": True})

    start: AwareDatetime
    end: AwareDatetime
    overlap: BackfillOverlap | None = Field(
        None,
        description="`allow`: all at once. `one_by_one`: each waits until the run before it has ended. "
        "Without it: one by one if the schedule's own runs don't overlap.",
    )
    limit: StrictInt = Field(BACKFILL_LIMIT, ge=1, le=MOST_BACKFILLED, description="Refuse if there are more slots.")
    priority: StrictInt | None = Field(None, description="Null: 10 below that of the schedule.")
    dry_run: StrictBool = Field(False, description="Only show the slots.")


class ScheduleAnswer(BaseModel):
    """A schedule."""

    model_config = _shown(_SCHEDULE)

    name: str
    task_type: str
    description: str = Field(description="What it means, in words; or why it can't be read.")
    schedule: dict[str, Any] = Field(description=_FIELDS)
    source: str = Field(description="`code` if a program declares it, `api` if it was made at run time.")
    state: str = Field(description="`active`, `paused`, `retired` (it has left the code) or `ended`.")
    queue: str
    priority: int
    parameters: dict[str, Any] = Field(description="The arguments of each run, with secrets masked.")
    next_slot: datetime | None
    last_slot: datetime | None = Field(description="The newest slot that was run or skipped.")
    last_task: UUID | None
    last_runs: list[str] = Field(description="The states of the last runs, the newest first.")
    fired: int
    skipped: int
    paused_at: datetime | None
    paused_by: str | None
    pause_note: str | None
    created_at: datetime
    changed_at: datetime
    read_at: datetime = Field(description="The database's time.")
    revision: int = Field(description="Grows with every change and pause.")
    waiting_slot: datetime | None = Field(description="A slot that is run when the run before it is finished.")
    resumed_at: datetime | None
    retired_at: datetime | None = Field(description="When it was found to have left the code.")
    module: str | None = Field(description="Of a schedule in code.")
    deployed_at: datetime | None = Field(description="Of a schedule in code: the newest deploy that has it.")
    max_retries: int
    timeout_seconds: int | None
    tags: dict[str, Any]
    required_capabilities: list[str]
    payload_version: int | None = Field(description="Of the arguments of its runs, if the function has versions.")


class SchedulesAnswer(BaseModel):
    """One page of schedules, by name."""

    model_config = _shown({"schedules": [_SCHEDULE], "next": None})

    schedules: list[ScheduleAnswer]
    next: str | None = Field(description="The `after` of the next page; null on the last one.")


class PreviewedSlotAnswer(BaseModel):
    """A slot to come."""

    utc: datetime
    local: datetime = Field(description="On the clock of the schedule's zone.")
    note: str | None = Field(description="A remark if a change of the clocks moves the slot.")


class PreviewAnswer(BaseModel):
    """What a schedule means."""

    model_config = _shown({"description": _WORDS, "slots": [_SLOT]})

    description: str
    slots: list[PreviewedSlotAnswer]


class ExplainScheduleAnswer(BaseModel):
    """What became of a slot, and whether the schedule runs."""

    model_config = _shown({"sentences": ["Its next slot is 2026-05-22 03:00:00+0200, in 17 h."]})

    sentences: list[str]


class SyncSchedulesAnswer(BaseModel):
    """What became of the schedules of a program: their names."""

    model_config = _shown({"created": ["nightly"], "changed": [], "unchanged": [], "refused": [], "retired": []})

    created: list[str]
    changed: list[str]
    unchanged: list[str]
    refused: list[str] = Field(
        description="A deploy that is not older has another version, or the name belongs to one made at run time."
    )
    retired: list[str]


class RunScheduleAnswer(BaseModel):
    """The task of a run by hand."""

    model_config = _shown({"task_id": _ID})

    task_id: UUID


class BackfillAnswer(BaseModel):
    """What a backfill did, or would do."""

    model_config = _shown(
        {
            "count": 1,
            "slots": [_MOMENT],
            "task_ids": [_ID],
            "overlap": "allow",
            "has_task": 0,
            "flow": None,
            "dry_run": False,
        }
    )

    count: int = Field(description="Slots in the range.")
    slots: list[datetime]
    task_ids: list[UUID] = Field(description="The tasks that are new.")
    overlap: BackfillOverlap
    has_task: int = Field(description="How many of the slots had a task before: these are not run again.")
    flow: UUID | None = Field(description="Of runs one by one: the flow that the tasks belong to.")
    dry_run: bool


def schedule_answer(info: ScheduleInfo, redaction: Redaction) -> ScheduleAnswer:
    """A schedule as it may be shown."""
    masked = redaction.schedule(info)
    template = masked.template
    return ScheduleAnswer(
        name=info.name,
        task_type=info.task,
        description=info.unreadable or describe(info.schedule),
        schedule=masked.spec,
        source=info.source,
        state=info.state,
        queue=template["queue"],
        priority=template["priority"],
        parameters=template["kwargs"],
        next_slot=info.next_slot,
        last_slot=info.last_slot,
        last_task=info.last_task,
        last_runs=info.last_runs,
        fired=info.fired,
        skipped=info.skipped,
        paused_at=info.paused_at,
        paused_by=info.paused_by,
        pause_note=masked.pause_note,
        created_at=info.created_at,
        changed_at=info.changed_at,
        read_at=info.read_at,
        revision=info.revision,
        waiting_slot=info.waiting_slot,
        resumed_at=info.resumed_at,
        retired_at=info.retired_at,
        module=info.module,
        deployed_at=info.deployed_at,
        max_retries=template["max_retries"],
        timeout_seconds=template["timeout_seconds"],
        tags=template["tags"],
        required_capabilities=template["required_capabilities"],
        payload_version=template.get("payload_version"),
    )


def preview_answer(preview: Preview) -> PreviewAnswer:
    slots = [PreviewedSlotAnswer(utc=each.utc, local=each.local, note=each.note) for each in preview.slots]
    return PreviewAnswer(description=preview.description, slots=slots)

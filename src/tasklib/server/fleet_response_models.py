"""What the API answers about everything but single tasks: dead letters, workers, pauses, settings, audit."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field

from tasklib.server.models import Read, example
from tasklib.store.audit import Action
from tasklib.store.pauses import Kind

_ID = "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f"
_MOMENT = "2026-05-21T08:30:00Z"
_FINGERPRINT = "b1946ac92492d2347c6235b4d2611184"


class GroupAnswer(Read):
    """Dead letters with the same name and, but for ids and numbers, the same error."""

    fingerprint: str
    name: str
    count: int
    first_seen: datetime
    last_seen: datetime
    sample_id: UUID
    error: str = Field(description="The last line of the sample's error.")


class GroupsAnswer(BaseModel):
    """Dead letters by cause, the most frequent first."""

    model_config = example(
        {
            "groups": [
                {
                    "fingerprint": _FINGERPRINT,
                    "name": "send_email",
                    "count": 412,
                    "first_seen": _MOMENT,
                    "last_seen": _MOMENT,
                    "sample_id": _ID,
                    "error": "ConnectionError: mail.example.com refused port 25",
                }
            ]
        }
    )

    groups: list[GroupAnswer]


class TakenAnswer(BaseModel):
    """The dead letters that were replayed or purged, or would be."""

    model_config = example({"count": 1, "task_ids": [_ID], "more": False, "dry_run": False})

    count: int
    task_ids: list[UUID]
    more: bool = Field(description="True: the limit was reached, and there may be more.")
    dry_run: bool


class WorkerAnswer(Read):
    """A worker."""

    worker_id: str = Field(validation_alias="id")
    status: str = Field(description="active, draining or dead: dead if its last heartbeat is too long ago.")
    queues: list[str] | None = Field(description="The queues it takes from; null means all.")
    names: list[str] | None = Field(description="The tasks it knows; null means any.")
    capabilities: list[str]
    capacity: int
    current_load: int
    current_tasks: list[UUID] = Field(default_factory=list, description="The ids of the tasks that are leased to it.")
    version: str
    host: str
    pid: int
    started_at: datetime
    last_heartbeat: datetime
    seconds_since_heartbeat: float
    drain_requested_at: datetime | None
    is_leader: bool


class WorkersAnswer(BaseModel):
    """Every worker that is known, the dead ones of the last day too, in the order of their starts."""

    model_config = example(
        {
            "workers": [
                {
                    "worker_id": "gpu1-4711-9f3a",
                    "status": "active",
                    "queues": None,
                    "names": ["process_video"],
                    "capabilities": ["gpu"],
                    "capacity": 5,
                    "current_load": 1,
                    "current_tasks": [_ID],
                    "version": "0.1.0",
                    "host": "gpu1",
                    "pid": 4711,
                    "started_at": _MOMENT,
                    "last_heartbeat": _MOMENT,
                    "seconds_since_heartbeat": 3.2,
                    "drain_requested_at": None,
                    "is_leader": True,
                }
            ],
            "leader": "gpu1-4711-9f3a",
        }
    )

    workers: list[WorkerAnswer]
    leader: str | None = Field(description="The leader: the id of a worker or of a server; null if there is none.")


class DrainAnswer(BaseModel):
    """A worker that was asked to drain."""

    model_config = example({"worker_id": "gpu1-4711-9f3a", "status": "draining"})

    worker_id: str
    status: str


class SavedSearchAnswer(Read):
    """A search that is kept under a name."""

    name: str
    search: str
    saved_by: str
    saved_at: datetime


class SavedSearchesAnswer(BaseModel):
    """All saved searches, by name."""

    model_config = example(
        {
            "searches": [
                {
                    "name": "late mail",
                    "search": "queue:mail due:<1h",
                    "saved_by": "ada",
                    "saved_at": "2026-03-01T09:00:00Z",
                }
            ]
        }
    )

    searches: list[SavedSearchAnswer]


class SavedSearchChangeAnswer(BaseModel):
    """What became of a saved search."""

    model_config = example({"name": "late mail", "changed": True})

    name: str
    changed: bool


class PauseAnswer(Read):
    """A queue or a name that is paused."""

    kind: Kind
    value: str
    paused_at: datetime


class PausesAnswer(BaseModel):
    """All that is paused."""

    model_config = example({"pauses": [{"kind": "queue", "value": "mail", "paused_at": _MOMENT}]})

    pauses: list[PauseAnswer]


class PauseChangeAnswer(BaseModel):
    """What became of a pause."""

    model_config = example({"kind": "queue", "value": "mail", "changed": True})

    kind: Kind
    value: str
    changed: bool = Field(description="False: it was in this state already.")


class SettingsAnswer(Read):
    """The settings that change at run time, as they are now."""

    model_config = example(
        {
            "promote_to_medium_after_seconds": 300.0,
            "promote_to_high_after_seconds": 1200.0,
            "changed": ["promote_to_medium_after_seconds"],
        }
    )

    promote_to_medium_after_seconds: float
    promote_to_high_after_seconds: float
    changed: list[str] = Field(description="The settings stored for the fleet; the others come from the configuration.")


class AuditAnswer(Read):
    """Who did what to what, and when."""

    id: int
    at: datetime
    actor: str
    action: Action | str
    target: str | None = Field(
        description="A task's, worker's or token's id, `queue:mail`, `name:send_email`; null for many tasks at once."
    )
    details: dict[str, Any] = Field(description="The parameters of the request; for many tasks also the `count`.")


class AuditPage(BaseModel):
    """Records, the latest first."""

    model_config = example(
        {
            "records": [
                {
                    "id": 17,
                    "at": _MOMENT,
                    "actor": "token:ops (28d2cb701504)",
                    "action": "pause",
                    "target": "queue:mail",
                    "details": {},
                }
            ],
            "next": None,
        }
    )

    records: list[AuditAnswer]
    next: str | None = Field(description="Pass it as `cursor` for the next page; null on the last one.")


class DepthAnswer(BaseModel):
    """The tasks that are due, of one level."""

    depth: int
    is_capped: bool = Field(description="True: the number is a lower bound; counting stopped there.")
    oldest_age_seconds: float | None = Field(
        description="How long the oldest of them has waited; null if there is none."
    )


class FleetAnswer(BaseModel):
    """The workers in figures."""

    active: int
    draining: int
    dead: int = Field(description="Within the last day.")
    total_capacity: int = Field(description="How many tasks the live workers can run at a time.")
    used_capacity: int = Field(description="How many tasks they ran at their last heartbeats.")


class ThroughputAnswer(BaseModel):
    """What ended in the last minute."""

    completed_last_minute: int
    failed_last_minute: int = Field(description="Failed attempts, both retried ones and final ones.")


_LEVELS = {
    "high": {"depth": 12, "is_capped": False, "oldest_age_seconds": 45.1},
    "medium": {"depth": 45, "is_capped": False, "oldest_age_seconds": 320.0},
    "low": {"depth": 2000, "is_capped": True, "oldest_age_seconds": 580.4},
}


class StatsAnswer(BaseModel):
    """The queue in figures."""

    model_config = example(
        {
            "queues": _LEVELS,
            "by_queue": {"default": _LEVELS},
            "running": 67,
            "workers": {"active": 18, "draining": 2, "dead": 0, "total_capacity": 100, "used_capacity": 67},
            "throughput": {"completed_last_minute": 120, "failed_last_minute": 3},
        }
    )

    queues: dict[str, DepthAnswer] = Field(description="By level: `high`, `medium` and `low`.")
    by_queue: dict[str, dict[str, DepthAnswer]] = Field(description="The same for each queue in which tasks are due.")
    running: int
    workers: FleetAnswer
    throughput: ThroughputAnswer

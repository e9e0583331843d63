"""What the API answers about everything but single tasks: dead letters, workers, pauses, settings, tokens, audit."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from tasklib.store.audit import Action
from tasklib.store.pauses import Kind
from tasklib.store.tokens import Role

_ID = "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f"
_MOMENT = "2026-05-21T08:30:00Z"
_FINGERPRINT = "b1946ac92492d2347c6235b4d2611184"


class _Read(BaseModel):
    """Made of what the client returns: `Answer.model_validate(record)`."""

    model_config = ConfigDict(from_attributes=True, populate_by_name=True)


def _example(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(from_attributes=True, populate_by_name=True, json_schema_extra={"examples": list(examples)})


class GroupAnswer(_Read):
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

    model_config = _example(
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

    model_config = _example({"count": 1, "task_ids": [_ID], "more": False, "dry_run": False})

    count: int
    task_ids: list[UUID]
    more: bool = Field(description="True: the limit was reached, and there may be more.")
    dry_run: bool


class WorkerAnswer(_Read):
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

    model_config = _example(
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

    model_config = _example({"worker_id": "gpu1-4711-9f3a", "status": "draining"})

    worker_id: str
    status: str


class SavedSearchAnswer(_Read):
    """A search that is kept under a name."""

    name: str
    search: str
    saved_by: str
    saved_at: datetime


class SavedSearchesAnswer(BaseModel):
    """All saved searches, by name."""

    model_config = _example(
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

    model_config = _example({"name": "late mail", "changed": True})

    name: str
    changed: bool


class LimitAnswer(_Read):
    """A limit; null: no bound of that kind."""

    name: str
    max_running: int | None
    rate: float | None
    per: float | None
    burst: int | None
    serial: Literal["hold", "aside"] | None
    weight: int | None
    may_burst: bool | None
    source: str
    declared: dict[str, Any] | None
    changed_at: datetime
    running: int
    blocked_until: datetime | None


class LimitsAnswer(BaseModel):
    """All limits, by name."""

    model_config = _example(
        {
            "limits": [
                {
                    "name": "stripe",
                    "max_running": 5,
                    "rate": 100.0,
                    "per": 60.0,
                    "burst": 1,
                    "serial": None,
                    "weight": None,
                    "may_burst": None,
                    "source": "api",
                    "declared": None,
                    "changed_at": "2026-05-04T12:00:00Z",
                    "running": 3,
                    "blocked_until": None,
                }
            ]
        }
    )

    limits: list[LimitAnswer]


class LimitChangeAnswer(BaseModel):
    """What became of a limit."""

    model_config = _example({"name": "queue:mail", "changed": True})

    name: str
    changed: bool


class PauseAnswer(_Read):
    """A queue or a name that is paused."""

    kind: Kind
    value: str
    paused_at: datetime


class PausesAnswer(BaseModel):
    """All that is paused."""

    model_config = _example({"pauses": [{"kind": "queue", "value": "mail", "paused_at": _MOMENT}]})

    pauses: list[PauseAnswer]


class PauseChangeAnswer(BaseModel):
    """What became of a pause."""

    model_config = _example({"kind": "queue", "value": "mail", "changed": True})

    kind: Kind
    value: str
    changed: bool = Field(description="False: it was in this state already.")


class SettingsAnswer(_Read):
    """The settings that change at run time, as they are now."""

    model_config = _example(
        {
            "promote_to_medium_after_seconds": 300.0,
            "promote_to_high_after_seconds": 1200.0,
            "changed": ["promote_to_medium_after_seconds"],
        }
    )

    promote_to_medium_after_seconds: float
    promote_to_high_after_seconds: float
    changed: list[str] = Field(description="Those stored for the fleet; the others come from the configuration.")


_TOKEN = {
    "id": _ID,
    "name": "ci",
    "prefix": "157a26d8fcf2",
    "roles": ["submitter"],
    "queues": None,
    "created_at": _MOMENT,
    "created_by": "token:root (0a1b2c3d4e5f)",
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": None,
    "is_usable": True,
}


class TokenAnswer(_Read):
    """A token, without its secret."""

    model_config = _example(_TOKEN)

    id: UUID
    name: str
    prefix: str = Field(description="The part of it that is not secret.")
    roles: list[Role]
    queues: list[str] | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute.")
    is_usable: bool


class NewTokenAnswer(TokenAnswer):
    """A token that was just created."""

    model_config = _example({"token": "tasklib_157a26d8fcf2_...", **_TOKEN})

    token: str = Field(description="The token itself: shown here and never again.")


class TokensAnswer(BaseModel):
    """All tokens, the oldest first: those that expired or were revoked too."""

    model_config = _example({"tokens": [_TOKEN]})

    tokens: list[TokenAnswer]


class AuditAnswer(_Read):
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

    model_config = _example(
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

    model_config = _example(
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

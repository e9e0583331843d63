"""Replays as jobs, over HTTP: what begins one, and what is said of it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from tasklib.client.replays import MOST_PER_MINUTE
from tasklib.server.request_models import DeadLetterConditionsBody

Rate = Annotated[float, Field(gt=0, le=MOST_PER_MINUTE, strict=True)]

_EXAMPLE: dict[str, Any] = {
    "id": "01994d3b-8f6e-7c21-8000-4a1b2c3d4e5f",
    "status": "running",
    "conditions": {"fingerprint": "b1946ac92492"},
    "created_at": "2026-05-21T01:00:00Z",
    "created_by": "ann",
    "per_minute": 30.0,
    "canary": "passed",
    "canary_task": "01994d3b-8f6e-7c21-8000-4a1b2c3d4e60",
    "reason": None,
    "expected": 120,
    "expected_is_capped": False,
    "replayed": 31,
    "completed": 29,
    "failed": 0,
    "dropped": 0,
    "waiting": 2,
    "ended_at": None,
}


class StartReplayBody(DeadLetterConditionsBody):
    """Which dead letters to replay, and how fast."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"fingerprint": "b1946ac92492", "per_minute": 30.0, "canary": True}]},
    )

    per_minute: Rate | None = Field(None, description="The maximum rate per minute; null: no limit.")
    canary: StrictBool = Field(True, description="Replay one first; the others when it has completed.")


class ReplayAnswer(BaseModel):
    """A job that replays dead letters."""

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={"examples": [_EXAMPLE]},
    )

    id: UUID
    status: Literal["running", "paused", "done", "stopped"] = Field(description="`done`: all are replayed.")
    conditions: dict[str, Any]
    created_at: datetime
    created_by: str
    per_minute: float | None
    canary: Literal["wanted", "waiting", "passed", "failed"] | None
    canary_task: UUID | None
    reason: str | None = Field(description="Why the leader has paused it.")
    expected: int = Field(description="How many dead letters there were when it began.")
    expected_is_capped: bool = Field(description="True: the number is a lower bound.")
    replayed: int
    completed: int
    failed: int = Field(description="Tasks that became dead letters again.")
    dropped: int = Field(description="Tasks that were cancelled or deleted.")
    waiting: int = Field(description="Not ended: waiting, running, or to be retried.")
    ended_at: datetime | None


class ReplaysAnswer(BaseModel):
    """Replays, the newest first."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"replays": [_EXAMPLE]}]})

    replays: list[ReplayAnswer]

"""Requests and answers about circuit breakers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tasklib.server.request_models import Body, Name
from tasklib.tasks.breakers import MAX_ATTEMPTS, MAX_PAUSE_SECONDS, MAX_PROBES, MAX_WITHIN_SECONDS


class BreakerBody(Body):
    """When the tasks of a name stop to begin, and for how long."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "charge", "failures": 0.5, "pause": 120}]}
    )

    name: Name = Field(description="The name of the task function.")
    failures: Annotated[float, Field(strict=True, gt=0, le=1)] = Field(
        0.5, description="The share of failed attempts that opens it."
    )
    at_least: Annotated[int, Field(strict=True, ge=1, le=MAX_ATTEMPTS)] = Field(
        20, description="The fewest attempts by which it is judged."
    )
    within: Annotated[float, Field(strict=True, gt=0, le=MAX_WITHIN_SECONDS)] = Field(
        60.0, description="The seconds over which attempts count."
    )
    pause: Annotated[float, Field(strict=True, gt=0, le=MAX_PAUSE_SECONDS)] = Field(
        60.0, description="How many seconds tasks wait while it is open."
    )
    probes: Annotated[int, Field(strict=True, ge=1, le=MAX_PROBES)] = Field(
        3, description="How many tasks run first after the pause; if none fails, the breaker closes."
    )


class BreakerAnswer(BaseModel):
    """The breaker of a task name."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    state: Literal["closed", "open", "probing"]
    since: datetime
    until: datetime | None = Field(description="Open: when it begins to probe; null: when an operator closes it.")
    opened: int = Field(description="How often it has opened.")
    failures: float | None = Field(
        description="null, as the next four: an operator removed the breaker that the code declares."
    )
    at_least: int | None
    within: float | None
    pause: float | None
    probes: int | None
    source: str
    declared: dict[str, Any] | None
    changed_at: datetime
    seen_attempts: int | None = Field(
        description="The attempts by which it opened last; null: it was opened by hand, or never."
    )
    seen_failures: int | None
    passed: int = Field(description="Probing: how many probes were successful.")
    under_way: int = Field(description="Probing: how many were chosen and have not ended.")


class BreakersAnswer(BaseModel):
    """All breakers, by name."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "breakers": [
                        {
                            "name": "charge",
                            "state": "open",
                            "since": "2026-05-04T12:00:00Z",
                            "until": "2026-05-04T12:01:00Z",
                            "opened": 1,
                            "failures": 0.5,
                            "at_least": 20,
                            "within": 60.0,
                            "pause": 60.0,
                            "probes": 3,
                            "source": "code",
                            "declared": {"failures": 0.5, "at_least": 20, "within": 60.0, "pause": 60.0, "probes": 3},
                            "changed_at": "2026-05-04T09:00:00Z",
                            "seen_attempts": 24,
                            "seen_failures": 23,
                            "passed": 0,
                            "under_way": 0,
                        }
                    ]
                }
            ]
        }
    )

    breakers: list[BreakerAnswer]


class BreakerChangeAnswer(BaseModel):
    """What became of a breaker."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "charge", "changed": True}]})

    name: str
    changed: bool

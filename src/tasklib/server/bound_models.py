"""Requests and answers about the bounds of queues and names."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tasklib.server.request_models import PauseBody
from tasklib.tasks.options import MAX_INT


class BoundsBody(PauseBody):
    """A queue or a task's name, and what may wait before submissions are refused. null: no bound of that kind."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"queue": "mail", "max_wait": 60}, {"name": "resize", "max_pending": 5000}]},
    )

    max_wait: Annotated[float, Field(strict=True, gt=0, le=MAX_INT)] | None = Field(
        None, description="How long the oldest due task may have waited, in seconds."
    )
    max_pending: Annotated[int, Field(strict=True, ge=1, le=MAX_INT)] | None = Field(
        None, description="How many due tasks may wait, as the leader counted them last."
    )

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.max_wait is None and self.max_pending is None:
            raise ValueError("give max_wait, max_pending or both")
        return self


class QueueBoundAnswer(BaseModel):
    """What may wait in a queue."""

    model_config = ConfigDict(from_attributes=True)

    queue: str
    max_wait: float | None
    max_pending: int | None
    changed_at: datetime


class NameBoundAnswer(BaseModel):
    """What may wait of a task name, whatever its queue."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    max_wait: float | None
    max_pending: int | None
    changed_at: datetime


class BoundsAnswer(BaseModel):
    """All bounds."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "queues": [
                        {"queue": "mail", "max_wait": 60.0, "max_pending": None, "changed_at": "2026-05-04T12:00:00Z"}
                    ],
                    "names": [],
                }
            ]
        }
    )

    queues: list[QueueBoundAnswer]
    names: list[NameBoundAnswer]


class BoundChangeAnswer(BaseModel):
    """What became of bounds."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "queue", "value": "mail", "changed": True}]})

    kind: Literal["queue", "name"]
    value: str
    changed: bool

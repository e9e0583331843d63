"""Requests and answers about limits."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from tasklib.server.models import Read, example
from tasklib.server.request_models import Body, Name, Seconds
from tasklib.tasks.options import MAX_INT


class LimitBody(Body):
    """All bounds of a limit; null: no bound of that kind."""

    model_config = example(
        {"name": "queue:mail", "max_running": 5},
        {"name": "stripe", "rate": 100, "per": 60, "burst": 20},
    )

    name: Name = Field(description="`queue:mail`, `name:send_email`, `share:acme`, `serial:ledger`, or its own name.")
    max_running: Annotated[int, Field(strict=True, ge=0, le=MAX_INT)] | None = Field(
        None, description="How many tasks run at a time."
    )
    rate: Annotated[float, Field(strict=True, gt=0)] | None = Field(
        None, description="How many tasks begin in `per` seconds."
    )
    per: Seconds | None = Field(None, gt=0, description="The seconds of `rate`; default 1.")
    burst: Annotated[int, Field(strict=True, ge=1, le=MAX_INT)] | None = Field(
        None, description="With `rate`: how many may begin at once; default 1."
    )
    serial: Literal["hold", "aside"] | None = Field(
        None, description="One at a time, in order. A task that failed holds the others, or steps aside."
    )
    weight: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = Field(
        None, description="Only for a share: how many tasks it runs in its turn."
    )
    may_burst: bool | None = Field(None, description="Only for a share: it may exceed `max_running` in idle slots.")


class LimitAnswer(Read):
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

    model_config = example(
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

    model_config = example({"name": "queue:mail", "changed": True})

    name: str
    changed: bool

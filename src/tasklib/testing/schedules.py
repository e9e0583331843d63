"""Time travel for schedules: the slots that would be fired in a stretch of time. No database and no clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tasklib.schedules import run_at, slots_between
from tasklib.tasks import registry


@dataclass(frozen=True, slots=True)
class TestedSlot:
    """A slot of a schedule in code, as a leader would fire it."""

    slot: datetime
    """In UTC."""
    schedule: str
    task: str
    args: dict[str, Any]
    run_at: datetime
    """The slot, and the schedule's jitter."""


@contextmanager
def at(start: str | datetime, *, until: str | datetime) -> Iterator[list[TestedSlot]]:
    """The slots of all task functions that are registered here, from one instant up to another, in their order.

    with schedules.at("2026-03-29T00:00", until="2026-03-30T00:00") as fired:
        assert [each.schedule for each in fired] == ["nightly"]

    A time without a zone is in UTC.
    """
    first, last = _instant(start), _instant(until)
    found = [
        TestedSlot(slot, schedule.name or task.name, task.name, dict(schedule.args), when)
        for task in registry.distinct()
        for schedule in task.schedules
        for slot in slots_between(schedule, first - timedelta.resolution, last)
        for when in [run_at(schedule, schedule.name or task.name, slot)]
    ]
    yield sorted(found, key=lambda each: (each.slot, each.schedule))


def _instant(given: str | datetime) -> datetime:
    moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)

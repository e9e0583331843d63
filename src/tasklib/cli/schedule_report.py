"""A schedule as `tasklib schedule` shows it: rows, lines and JSON."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tasklib.cli.moments import relative
from tasklib.cli.tables import print_rows
from tasklib.formatting import MARKS

if TYPE_CHECKING:
    from tasklib.schedules import PreviewedSlot, Schedule
    from tasklib.store.schedules import ScheduleInfo

TITLES = ("name", "task", "when", "state", "next", "last runs", "run", "skipped")


def as_json(info: ScheduleInfo) -> dict[str, Any]:
    """All about a schedule."""
    from dataclasses import fields

    shown = {"spec": "schedule"}
    values = {shown.get(e.name, e.name): getattr(info, e.name) for e in fields(info) if e.name != "read_at"}
    return {key: _plain(each) for key, each in values.items()}


def row(info: ScheduleInfo) -> tuple[str, ...]:
    """One schedule for a person or a script."""
    return (
        info.name,
        info.task,
        "unreadable" if info.unreadable else when(info.schedule),
        info.state,
        moment_text(info.next_slot, info.read_at) if info.is_active else "",
        _last_runs(info.last_runs[:5]),
        str(info.fired),
        str(info.skipped),
    )


def _last_runs(states: list[str]) -> str:
    """Short for a person, the newest first; in words for a script."""
    return "".join(MARKS.get(each, "?") for each in states) if sys.stdout.isatty() else " ".join(states)


def when(schedule: Schedule) -> str:
    """`0 3 * * * Europe/Berlin`, `every 15 min`."""
    from tasklib.observe.formatting import duration

    if schedule.every is not None:
        return f"every {duration(schedule.every.total_seconds())}"
    return f"{' or '.join(schedule.cron or ())} {schedule.timezone}"


def print_info(info: ScheduleInfo) -> None:
    """All about a schedule, line by line."""
    from tasklib.schedules import describe

    known = {
        "name": info.name,
        "task": info.task,
        "means": info.unreadable or describe(info.schedule),
        "state": info.state,
        "paused": f"by {info.paused_by}: {info.pause_note or 'no note'}" if info.paused_at else None,
        "waits": info.waiting_slot and f"{info.waiting_slot.isoformat()} waits for the run before it",
        "arguments": json.dumps(info.template["kwargs"]),
        "queue": info.template["queue"],
        "priority": str(info.template["priority"]),
        "source": info.source if info.module is None else f"{info.source}, {info.module}",
        "last slot": info.last_slot and info.last_slot.isoformat(),
        "last task": info.last_task and str(info.last_task),
        "last runs": " ".join(info.last_runs) or None,
        "run": f"{info.fired} slots, {info.skipped} skipped",
    }
    print_rows(("", ""), [(key, str(each)) for key, each in known.items() if each], none="")


def print_slots(slots: list[PreviewedSlot]) -> None:
    """Slots to come, in the zone of the schedule and in UTC."""
    rows = [(s.local.isoformat(sep=" "), s.utc.isoformat(sep=" "), s.note or "") for s in slots]
    print_rows(("in its zone", "UTC", ""), rows, none="no slot to come")


def moment_text(moment: datetime | None, now: datetime) -> str:
    """Relative for a person, exact for a script."""
    if moment is None:
        return ""
    return relative(moment, now) if sys.stdout.isatty() else moment.isoformat()


def _plain(each: Any) -> Any:
    match each:
        case datetime():
            return each.isoformat()
        case timedelta():
            return each.total_seconds()
        case UUID():
            return str(each)
    return each

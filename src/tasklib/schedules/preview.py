"""A schedule for people: one line of plain English, and its next times in its zone and in UTC."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from tasklib.schedules import zones
from tasklib.schedules.schedule import EPOCH, Schedule
from tasklib.schedules.slots import slots

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


@dataclass(frozen=True)
class PreviewedSlot:
    """A slot to come."""

    utc: datetime
    local: datetime
    """The same instant, on the clock of the schedule's zone."""
    note: str | None = None
    """What is special about it when the clocks of the zone change."""


def preview(schedule: Schedule, after: datetime, count: int = 20) -> list[PreviewedSlot]:
    """The next slots after an instant; fewer if very many between them are excluded."""
    return [_previewed(schedule, slot) for slot in islice(slots(schedule, after, is_brief=True), count)]


def describe(schedule: Schedule) -> str:
    """`At 03:00 every day, Europe/Berlin; a run is skipped while the one before is not finished.`"""
    return "; ".join([_rule(schedule), *_limits(schedule), *_policies(schedule)]) + "."


def _previewed(schedule: Schedule, slot: datetime) -> PreviewedSlot:
    zone = zones.load(schedule.timezone)
    local = slot.astimezone(zone)
    note = None
    if schedule.expressions and not any(cron.shows(local.replace(tzinfo=None)) for cron in schedule.expressions):
        note = "moved to the end of the hour that the clocks skip"
    elif local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
        note = "the clocks show this time twice; this is the " + ("second" if local.fold else "first")
    return PreviewedSlot(slot, local, note)


def _rule(schedule: Schedule) -> str:
    if schedule.every is not None:
        anchor = "" if schedule.anchor == EPOCH else f", counted from {_instant(schedule.anchor)}"
        return f"Every {_length(schedule.every).removeprefix('1 ')}{anchor}"
    either = " or ".join(
        cron.description if number == 0 else cron.description[0].lower() + cron.description[1:]
        for number, cron in enumerate(schedule.expressions)
    )
    return f"{either}, {schedule.timezone}"


def _limits(schedule: Schedule) -> Iterable[str]:
    left_out = [cron.description[0].lower() + cron.description[1:] for cron in schedule.excluding_expressions]
    left_out += [f"on {day}" for day in sorted(schedule.excluded_days)[:5]]
    if len(schedule.excluded_days) > 5:
        left_out.append(f"on {len(schedule.excluded_days) - 5} more days")
    if left_out:
        yield f"not {', '.join(left_out)}"
    if schedule.starts_at:
        yield f"from {_instant(schedule.starts_at)} on"
    if schedule.ends_at:
        yield f"until {_instant(schedule.ends_at)}"


def _policies(schedule: Schedule) -> Iterable[str]:
    window = _length(schedule.catch_up_window)
    yield {
        "latest": f"of missed slots the newest is run, if it is not older than {window}",
        "all": f"missed slots are all run, up to {schedule.catch_up_limit} and not older than {window}",
        "none": "missed slots are not run",
    }[schedule.catch_up]
    if schedule.overlap != "allow":
        yield {
            "skip": "a slot is skipped while an earlier run is not finished",
            "wait_one": "one run waits while an earlier one is not finished, and more are skipped",
            "cancel_running": "an earlier run that is not finished is cancelled",
        }[schedule.overlap]
    if schedule.max_jitter:
        yield f"runs start up to {_length(schedule.max_jitter)} later"
    if schedule.pause_after:
        yield f"paused after {schedule.pause_after} dead letters in a row"


def _instant(instant: datetime) -> str:
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _length(duration: timedelta) -> str:
    """`90 minutes`, `1 day`, `1.5 seconds`: in the largest unit that divides it."""
    seconds = duration.total_seconds()
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds % size == 0), (1, "second"))
    number = seconds / size
    return f"1 {unit}" if number == 1 else f"{number:g} {unit}s"

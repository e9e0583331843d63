"""Schedules as values: cron expressions and intervals, their slots in every zone, and which of them are due.

Nothing here reads a clock or a database: instants come from the caller, and a slot follows from the slot before.
`cron.py` and `zones.py` know when an expression matches; `schedule.py` is the value that is written in code and stored;
`slots.py` decides what is fired; `preview.py` says it to people.
"""

from tasklib.schedules.cron import Cron
from tasklib.schedules.preview import PreviewedSlot, describe, preview
from tasklib.schedules.schedule import OF_TASKS, CatchUp, Overlap, Schedule, check_year
from tasklib.schedules.slots import (
    Due,
    Reason,
    Skipped,
    count_between,
    due,
    lost,
    next_slot,
    run_at,
    slots,
    slots_between,
)

__all__ = [
    "OF_TASKS",
    "CatchUp",
    "Cron",
    "Due",
    "Overlap",
    "PreviewedSlot",
    "Reason",
    "Schedule",
    "Skipped",
    "check_year",
    "count_between",
    "describe",
    "due",
    "lost",
    "next_slot",
    "preview",
    "run_at",
    "slots",
    "slots_between",
]

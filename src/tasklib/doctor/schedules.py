"""Schedules that will not run as they are meant to: unreadable, late, or with a function that no live worker serves."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, ok, warning
from tasklib.formatting import count, duration
from tasklib.schedules import Schedule
from tasklib.schedules.zones import TZDATA_VERSION
from tasklib.store import doctor, fleet
from tasklib.store.doctor import ScheduleSeen
from tasklib.store.fleet import WorkerInfo

LATE_SECONDS = 60.0
_MOST_READ = 5000
_NAMED = 5


def look(config: Config) -> Call[list[Finding]]:
    """What keeps active schedules from running."""
    seen: list[ScheduleSeen] = yield doctor.schedules(_MOST_READ)
    if not seen:
        return [ok("schedules", "There are no active schedules.")]
    known: list[WorkerInfo] = yield fleet.workers()
    live = [w for w in known if w.status == "active"]
    versions: list[tuple[str, list[str]]] = yield doctor.tzdata()
    found = [*_unreadable(seen), *_late(seen), *(_unserved(seen, live) if live else ()), *_differing(versions)]
    return found or [ok("schedules", f"{count(len(seen), 'active schedule')}, none of them late or without a worker.")]


def _unreadable(seen: Sequence[ScheduleSeen]) -> list[Finding]:
    bad = [(each.name, reason) for each in seen if (reason := _why_unreadable(each))]
    if not bad:
        return []
    return [
        warning(
            "unreadable_schedules",
            f"{count(len(bad), 'schedule')} can't be read by this version with tzdata {TZDATA_VERSION}: "
            f"{_some([f'{name} ({reason})' for name, reason in bad])}.",
            "A leader with this version and tzdata does not fire them.",
            "Update tasklib-pg and tzdata on all workers and servers, or change the schedule: tasklib schedule change",
            schedules=[name for name, _ in bad[:50]],
        )
    ]


def _late(seen: Sequence[ScheduleSeen]) -> list[Finding]:
    late = [each for each in seen if each.late_seconds > LATE_SECONDS]
    if not late:
        return []
    oldest = max(each.late_seconds for each in late)
    return [
        warning(
            "late_schedules",
            f"{count(len(late), 'schedule')} should have run up to {duration(oldest)} ago: "
            f"{_some([each.name for each in late])}.",
            "The leader makes their tasks as soon as it can.",
            "See whether a worker or server leads (tasklib workers), and its log.",
            schedules=[each.name for each in late[:50]],
        )
    ]


def _unserved(seen: Sequence[ScheduleSeen], live: Sequence[WorkerInfo]) -> list[Finding]:
    alone = [each for each in seen if not any(w.knows(each.task) for w in live)]
    if not alone:
        return []
    return [
        warning(
            "unserved_schedules",
            f"No live worker serves the function of {count(len(alone), 'schedule')}: "
            f"{_some([f'{each.name} ({each.task})' for each in alone])}.",
            "Their tasks are made, and wait.",
            "Start a worker that has the function, or delete or pause the schedule.",
            schedules=[each.name for each in alone[:50]],
        )
    ]


def _differing(versions: Sequence[tuple[str, Sequence[str]]]) -> list[Finding]:
    if len(versions) < 2:
        return []
    return [
        warning(
            "differing_tzdata",
            "Live workers have different time zones: "
            f"{'; '.join(f'tzdata {version} on {_some(hosts)}' for version, hosts in versions)}.",
            "Which slots a schedule has may depend on which of them leads.",
            "Install the same version of the tzdata package on all hosts, and restart their workers.",
            versions=[version for version, _ in versions],
        )
    ]


def _why_unreadable(each: ScheduleSeen) -> str | None:
    try:
        Schedule.from_json(each.spec)
    except Exception as e:
        return str(e)
    return None


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return f"{', '.join(texts[:_NAMED])}{more}"

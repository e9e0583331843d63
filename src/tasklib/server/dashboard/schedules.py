"""The schedules: a list with their next and last runs, and a calendar of the coming day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypedDict
from urllib.parse import urlencode

from fastapi import Query, Request
from starlette.responses import Response

from tasklib.errors import InvalidOption
from tasklib.formatting import MARKS
from tasklib.schedules import describe, zones
from tasklib.server.dashboard.schedule_calendar import DAY, calendar
from tasklib.server.dashboard.screens import Serving, Viewer, screen_router
from tasklib.server.dashboard.shell import page
from tasklib.store import schedules as stored
from tasklib.store.schedules import LAST_RUNS, ComingSchedule, ScheduleInfo, ScheduleRun
from tasklib.tasks.options import is_name

router = screen_router()

PAGE = 100
LATE_SECONDS = 10.0
"""A slot that is due for longer is late: a change of leader takes less."""
MOST_ON_CALENDAR = 300


class _Conditions(TypedDict, total=False):
    paused: bool
    retired: bool


_STATES = {"": "All", "active": "Active", "paused": "Paused", "retired": "Retired"}
_CONDITIONS: dict[str, _Conditions] = {
    "active": {"paused": False, "retired": False},
    "paused": {"paused": True},
    "retired": {"retired": True},
}
_NO_CONDITIONS: _Conditions = {}


@dataclass(frozen=True, slots=True)
class ShownSchedule:
    """A schedule in the list."""

    info: ScheduleInfo
    description: str
    runs: list[ScheduleRun]
    """Oldest first."""
    late: float | None
    """For how many seconds its slot has been due."""

    @property
    def rule(self) -> str:
        """The description without the policies."""
        return self.description if self.info.unreadable else self.description.partition(";")[0].removesuffix(".")

    @property
    def outcome(self) -> str:
        return outcome(self.runs)


@router.get("/schedules")
async def schedules(
    request: Request,
    principal: Viewer,
    services: Serving,
    q: Annotated[str, Query(max_length=2000)] = "",
    state: str = "",
    after: Annotated[str, Query(max_length=20_000)] = "",
) -> Response:
    text, state = q.strip().replace("\x00", ""), state if state in _CONDITIONS else ""
    found = await services.run(
        stored.page(
            limit=PAGE + 1,
            after=after if is_name(after) else None,
            text=text or None,
            **_CONDITIONS.get(state, _NO_CONDITIONS),
        )
    )
    infos = found[:PAGE]
    runs = await services.run(stored.last_runs([info.name for info in infos], LAST_RUNS)) if infos else []
    return page(
        request,
        "schedules.html",
        shown=[_shown(services.redaction.schedule(info), runs) for info in infos],
        counts=await services.run(stored.counts(LATE_SECONDS)),
        q=q,
        state=state,
        states=_STATES,
        older={"after": infos[-1].name} if len(found) > PAGE else None,
        newer={"after": None} if after else None,
        marks=MARKS,
        one=address,
    )


@router.get("/schedules/calendar")
async def coming_day(request: Request, principal: Viewer, services: Serving, zone: str = "UTC") -> Response:
    found = await services.run(stored.coming(DAY.total_seconds(), MOST_ON_CALENDAR + 1))
    try:
        zone = zones.check(zone)
    except InvalidOption:
        zone = "UTC"
    now = await services.run(stored.now())
    shown = found[:MOST_ON_CALENDAR]
    return page(
        request,
        "schedules_calendar.html",
        calendar=calendar(shown, now, zone),
        zone=zone,
        zones=sorted({"UTC", zone, *map(_zone, shown)}),
        count=len(shown),
        is_capped=len(found) > MOST_ON_CALENDAR,
        today=now.astimezone(zones.load(zone)).date(),
        one=address,
    )


def address(name: str, screen: str = "show", **query: str) -> str:
    """Where a schedule's page is. The name is in the query: it may be `..`, or have slashes."""
    return f"/schedules/{screen}?{urlencode({'name': name, **query})}"


def outcome(runs: Sequence[ScheduleRun]) -> str:
    """`9 completed, 1 dead letter`."""
    number = Counter(run.state for run in runs)
    return ", ".join(f"{number[each]} {each.replace('_', ' ')}" for each in MARKS if number[each])


def described(info: ScheduleInfo) -> str:
    """What a schedule means, in words."""
    return info.unreadable or describe(info.schedule)


def lateness(info: ScheduleInfo) -> float | None:
    """For how many seconds its slot has been due, if it is late."""
    if not info.is_active or info.next_slot is None:
        return None
    seconds = (info.read_at - info.next_slot).total_seconds()
    return seconds if seconds > LATE_SECONDS else None


def fired_after(run: ScheduleRun) -> float:
    """How many seconds after its slot the task was made."""
    return max((run.created_at - run.slot).total_seconds(), 0.0)


def _shown(info: ScheduleInfo, runs: Sequence[ScheduleRun]) -> ShownSchedule:
    own = [run for run in reversed(runs) if run.schedule == info.name]
    return ShownSchedule(info, described(info), own, lateness(info))


def _zone(each: ComingSchedule) -> str:
    zone = each.spec.get("timezone")
    return zone if isinstance(zone, str) and zone in zones.names() else "UTC"

"""One schedule: what it means, its next times, its last runs, slots that were skipped; and what an operator does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Form, Query, Request
from starlette.responses import Response

from tasklib.client.schedule_reasons import WHY
from tasklib.client.search_terms import quoted
from tasklib.errors import InvalidOption, ScheduleNotFound
from tasklib.formatting import MARKS
from tasklib.schedules import Skipped, preview, zones
from tasklib.server.access import client_of
from tasklib.server.dashboard.schedule_form import local_moment, local_text
from tasklib.server.dashboard.schedules import address, described, fired_after, lateness, outcome
from tasklib.server.dashboard.screens import Operator, Serving, Viewer, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.store import schedules as stored
from tasklib.store.schedules import ScheduleInfo, ScheduleRun

router = screen_router()

NEXT = 20
MOST_RUNS = 30
MOST_SKIPS = 20
MOST_RECORDS = 20
Name = Annotated[str, Query(max_length=20_000)]
GivenName = Annotated[str, Form(max_length=20_000)]


@dataclass(frozen=True, slots=True)
class ShownRun:
    """The task of a slot."""

    run: ScheduleRun
    local: datetime
    after: float
    """Seconds from the slot until the task was made."""
    took: float | None


@dataclass(frozen=True, slots=True)
class ShownSkip:
    """Slots that were not run."""

    skip: Skipped
    first: datetime
    last: datetime
    why: str


@router.get("/schedules/show")
async def schedule(
    request: Request, principal: Viewer, services: Serving, name: Name, at: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    client = client_of(principal, services)
    info = await client.get_schedule(name)
    zone = zone_of(info)
    wrong, moment = None, None
    try:
        moment = local_moment("The time", at, zone) if at.strip() else None
        sentences = await client.explain_schedule(name, moment)
    except InvalidOption as e:
        wrong, moment = str(e), None
        sentences = await client.explain_schedule(name)
    runs = await services.run(stored.last_runs([name], MOST_RUNS))
    shows_next = info.unreadable is None and info.state != "retired"
    # In a thread, because with many exclusions it takes a while.
    coming = await asyncio.to_thread(preview, info.schedule, info.read_at, NEXT) if shows_next else []
    masked = services.redaction.schedule(info)
    records = await client.audit(target=name, limit=MOST_RECORDS)
    return page(
        request,
        "schedule.html",
        status=422 if wrong else 200,
        info=masked,
        description=described(info),
        late=lateness(info),
        zone=zone,
        asked_at=local_text(moment, zone) if moment else "",
        wrong=wrong,
        of_slot=sentences[0] if moment else None,
        why=[services.redaction.text(each) for each in sentences[1 if moment else 0 :]],
        coming=coming,
        runs=[_shown(run, zone) for run in runs],
        strip=runs[::-1],
        outcome=outcome(runs),
        skips=[_skipped(skip, zone) for skip in await services.run(stored.last_skips(name, MOST_SKIPS))],
        definition=masked.spec,
        arguments=masked.template["kwargs"],
        records=services.redaction.records(r for r in records if r.action.startswith("schedule")),
        marks=MARKS,
        one=address,
        tasks=f"/tasks?{urlencode({'q': f'schedule:{quoted(name)}'})}",
        of_function=f"/tasks?{urlencode({'q': f'name:{quoted(info.task)}'})}",
    )


@router.post("/schedules/pause")
async def pause(
    request: Request,
    principal: Operator,
    services: Serving,
    name: GivenName,
    note: Annotated[str, Form(max_length=20_000)] = "",
) -> Response:
    try:
        await client_of(principal, services).pause_schedule(name, note.strip() or None)
    except InvalidOption as e:
        return done(request, address(name), str(e), "bad")
    return done(request, address(name), "Paused. Slots that pass until it is resumed are not run.")


@router.post("/schedules/resume")
async def resume(request: Request, principal: Operator, services: Serving, name: GivenName) -> Response:
    try:
        info = await client_of(principal, services).resume_schedule(name)
    except InvalidOption as e:
        return done(request, address(name), str(e), "bad")
    if info.next_slot is None:
        return done(request, address(name), "Resumed, but it has no slot any more.", "warn")
    return done(request, address(name), f"Resumed. Its next slot is {_in_zone(info.next_slot, info)}.")


@router.post("/schedules/run")
async def run(request: Request, principal: Operator, services: Serving, name: GivenName) -> Response:
    id_ = await client_of(principal, services).run_schedule(name)
    return done(request, f"/tasks/{id_}", f"Submitted a run of {name[:80]}. The schedule's slots stay as they are.")


@router.post("/schedules/delete")
async def delete(request: Request, principal: Operator, services: Serving, name: GivenName) -> Response:
    try:
        await client_of(principal, services).delete_schedule(name)
    except ScheduleNotFound as e:
        return done(request, "/schedules", str(e)[:300], "warn")
    return done(request, "/schedules", f"Deleted {name[:80]}. Its tasks stay.")


def zone_of(info: ScheduleInfo) -> str:
    """The schedule's zone, or UTC if it is not known here."""
    zone: Any = info.spec.get("timezone")
    return zone if isinstance(zone, str) and zone in zones.names() else "UTC"


def _in_zone(moment: datetime, info: ScheduleInfo) -> str:
    zone = zone_of(info)
    return f"{moment.astimezone(zones.load(zone)):%Y-%m-%d %H:%M:%S}, {zone}"


def _shown(run: ScheduleRun, zone: str) -> ShownRun:
    took = None
    if run.started_at is not None and run.completed_at is not None:
        took = (run.completed_at - run.started_at).total_seconds()
    return ShownRun(run, run.slot.astimezone(zones.load(zone)), fired_after(run), took)


def _skipped(skip: Skipped, zone: str) -> ShownSkip:
    rules = zones.load(zone)
    return ShownSkip(skip, skip.first.astimezone(rules), skip.last.astimezone(rules), WHY.get(skip.reason, skip.reason))

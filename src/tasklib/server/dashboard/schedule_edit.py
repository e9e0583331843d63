"""Forms for schedules: make one, change one, and backfill one; each shows first what it will do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.datastructures import FormData
from starlette.responses import Response

from tasklib.client.backfills import BACKFILL_LIMIT, MOST_BACKFILLED, Backfill
from tasklib.client.schedules import Preview
from tasklib.errors import InvalidOption, TaskExecutionError, TaskNotFound
from tasklib.formatting import count
from tasklib.schedules import zones
from tasklib.server.access import client_of
from tasklib.server.dashboard.schedule import GivenName, Name, zone_of
from tasklib.server.dashboard.schedule_form import EMPTY, filled, local_moment, local_text, read
from tasklib.server.dashboard.schedules import address
from tasklib.server.dashboard.screens import Operator, Serving, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.server.services import Services
from tasklib.store import fleet
from tasklib.store.schedules import ScheduleInfo
from tasklib.tasks import registry

router = screen_router()

_MOST_TEXT = 100_000
_MOST_NAMES = 500
_MOST_SHOWN = 50
_REFUSED = (InvalidOption, TaskExecutionError, TaskNotFound)
Short = Annotated[str, Query(max_length=200)]


@router.get("/schedules/new")
async def new(request: Request, principal: Operator, services: Serving, task: Short = "") -> Response:
    return await _form(request, services, None, {**EMPTY, "name": "", "task": task})


@router.post("/schedules/new")
async def create(request: Request, principal: Operator, services: Serving) -> Response:
    given = _texts(await request.form())
    client = client_of(principal, services)
    task, name = given.get("task", "").strip(), given.get("name", "").strip()
    try:
        wanted = read(given, None, services.redaction)
        if given.get("step") == "preview":
            return await _form(request, services, None, given, preview=await client.preview_schedule(wanted))
        made = await client.create_schedule(
            task, wanted, name=name or None, registered_elsewhere=task not in registry.functions
        )
    except _REFUSED as e:
        return await _form(request, services, None, given, error=str(e))
    return done(request, address(made.name), "Created. It runs at its next slot.")


@router.get("/schedules/change")
async def change(request: Request, principal: Operator, services: Serving, name: Name) -> Response:
    info = await client_of(principal, services).get_schedule(name)
    shown = EMPTY if info.unreadable else filled(info.schedule, services.redaction)
    return await _form(request, services, info, {**shown, "revision": str(info.revision)}, error=info.unreadable)


@router.post("/schedules/change")
async def save(request: Request, principal: Operator, services: Serving, name: GivenName) -> Response:
    given = _texts(await request.form())
    client = client_of(principal, services)
    info = await client.get_schedule(name)
    try:
        wanted = read(given, None if info.unreadable else info.schedule, services.redaction)
        if given.get("step") == "preview":
            return await _form(request, services, info, given, preview=await client.preview_schedule(wanted))
        if given.get("revision") != str(info.revision):
            raise InvalidOption("The schedule was changed or paused since this form was opened. Load the form again.")
        changed = await client.change_schedule(name, wanted)
    except _REFUSED as e:
        return await _form(request, services, info, given, error=str(e))
    said = "Nothing to change." if changed.revision == info.revision else "Changed. It continues from now."
    return done(request, address(name), said)


@router.get("/schedules/backfill")
async def backfill(
    request: Request,
    principal: Operator,
    services: Serving,
    name: Name,
    start: Short = "",
    end: Short = "",
    overlap: Short = "",
    priority: Short = "",
    limit: Short = "",
) -> Response:
    """The form; with both times, what it would run."""
    client = client_of(principal, services)
    info = await client.get_schedule(name)
    zone = zone_of(info)
    given = {"start": start, "end": end, "overlap": overlap, "priority": priority, "limit": limit}
    error, look = None, None
    if start.strip() and end.strip():
        try:
            look = await client.backfill_schedule(name, **_stretch(given, zone), dry_run=True)
        except InvalidOption as e:
            error = str(e)
    else:
        given = {
            "start": local_text(info.read_at - timedelta(days=1), zone),
            "end": local_text(info.read_at, zone),
            "overlap": overlap,
            "priority": priority,
            "limit": limit,
        }
    return _backfill_page(request, info, given, look, error)


@router.post("/schedules/backfill")
async def run_backfill(request: Request, principal: Operator, services: Serving, name: GivenName) -> Response:
    given = _texts(await request.form())
    client = client_of(principal, services)
    info = await client.get_schedule(name)
    try:
        done_ = await client.backfill_schedule(name, **_stretch(given, zone_of(info)))
    except InvalidOption as e:
        return _backfill_page(request, info, given, None, str(e))
    made = len(done_.task_ids)
    said = f"Submitted {count(made, 'task')} for {count(done_.count, 'slot')}."
    if made < done_.count:
        said += " The others have been run before."
    if done_.flow is not None:
        said += " They run one by one."
        return done(request, f"/flows/{done_.flow}", said)
    return done(request, address(name), said)


def _stretch(given: Mapping[str, str], zone: str) -> dict[str, Any]:
    """The arguments of a backfill."""
    return {
        "start": local_moment("From", given.get("start", ""), zone),
        "end": local_moment("To", given.get("end", ""), zone),
        "overlap": given.get("overlap") or None,
        "priority": _number("The priority", given.get("priority", ""), "-10 to 100"),
        "limit": _number("The limit", given.get("limit", ""), f"1 to {MOST_BACKFILLED:,}") or BACKFILL_LIMIT,
    }


def _number(what: str, text: str, allowed: str) -> int | None:
    text = text.strip()
    if text and not (text.removeprefix("-").isdecimal() and len(text) < 10):
        raise InvalidOption(f"{what} is a number from {allowed}, not {text[:100]!r}.")
    return int(text) if text else None


def _backfill_page(
    request: Request, info: ScheduleInfo, given: Mapping[str, str], look: Backfill | None, error: str | None
) -> Response:
    zone = zone_of(info)
    slots = [] if look is None else [slot.astimezone(zones.load(zone)) for slot in look.slots[:_MOST_SHOWN]]
    return page(
        request,
        "schedule_backfill.html",
        status=422 if error else 200,
        info=info,
        given=given,
        zone=zone,
        look=look,
        slots=slots,
        error=error,
        limit=BACKFILL_LIMIT,
        one=address,
    )


async def _form(
    request: Request,
    services: Services,
    info: ScheduleInfo | None,
    given: Mapping[str, str],
    *,
    error: str | None = None,
    preview: Preview | None = None,
) -> Response:
    workers = await services.run(fleet.workers())
    served = {name for worker in workers if worker.status == "active" for name in worker.names or ()}
    return page(
        request,
        "schedule_form.html",
        status=422 if error and request.method == "POST" else 200,
        info=info,
        given={**EMPTY, "name": "", "task": "", "revision": "", **given},
        error=error,
        preview=preview,
        functions=sorted({*served, *registry.functions})[:_MOST_NAMES],
        zones=sorted(zones.names()),
        one=address,
    )


def _texts(form: FormData) -> dict[str, str]:
    return {name: value[:_MOST_TEXT] for name, value in form.items() if isinstance(value, str)}

"""Schedules: list, show, make, change, pause, run by hand, backfill, delete."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import AwareDatetime

from tasklib.client.schedule_sync import declare
from tasklib.client.schedules import Preview
from tasklib.schedules import Schedule
from tasklib.server.access import client_of
from tasklib.server.openapi import refusals
from tasklib.server.request_models import Name
from tasklib.server.routing import Given, Limit, Operator, Viewer, page_size
from tasklib.server.schedule_models import (
    BackfillAnswer,
    BackfillBody,
    ChangeScheduleBody,
    CreateScheduleBody,
    ExplainScheduleAnswer,
    PauseScheduleBody,
    PreviewAnswer,
    PreviewBody,
    RunScheduleAnswer,
    ScheduleAnswer,
    SchedulesAnswer,
    SyncSchedulesAnswer,
    SyncSchedulesBody,
    preview_answer,
    schedule_answer,
)
from tasklib.store import schedules as stored

router = APIRouter(prefix="/api/v1/schedules", tags=["schedules"])
_AT_ONCE = 20
ScheduleName = Annotated[Name, Path(description="The schedule's name.")]


@router.get("", operation_id="list_schedules", summary="List schedules")
async def list_schedules(
    principal: Viewer,
    given: Given,
    task_type: Annotated[Name | None, Query(description="Only schedules of this task function.")] = None,
    source: Annotated[Literal["code", "api"] | None, Query(description="Only schedules of this source.")] = None,
    paused: Annotated[bool | None, Query(description="true: only paused schedules; false: only others.")] = None,
    retired: Annotated[
        bool | None, Query(description="true: only schedules that have left the code; false: only others.")
    ] = None,
    after: Annotated[Name | None, Query(description="The `next` of the page before: a name.")] = None,
    limit: Limit = None,
) -> SchedulesAnswer:
    """Schedules by name, with their next slots and the states of their last runs."""
    client, size = client_of(principal, given), page_size(limit, given)
    conditions: dict[str, Any] = {"task": task_type, "source": source, "paused": paused, "retired": retired}
    shown, left, has_more = list[ScheduleAnswer](), given.settings.max_answer_bytes, True
    # Some at a time: a schedule may have arguments of a megabyte.
    while has_more and left > 0 and len(shown) < size:
        wanted = min(_AT_ONCE, size - len(shown))
        found = await client.schedules(after=shown[-1].name if shown else after, limit=wanted + 1, **conditions)
        has_more = len(found) > wanted
        for number, info in enumerate(found[:wanted], start=1):
            shown.append(schedule_answer(info, given.redaction))
            left -= len(shown[-1].model_dump_json())
            if left <= 0:
                has_more = number < len(found)
                break
    return SchedulesAnswer(schedules=shown, next=shown[-1].name if has_more else None)


@router.post("", operation_id="create_schedule", summary="Make a schedule", status_code=201)
async def create_schedule(body: CreateScheduleBody, principal: Operator, given: Given) -> ScheduleAnswer:
    """Let a task function run by itself. Its first slot lies in the future."""
    made = await client_of(principal, given).create_schedule(
        body.task_type, Schedule.from_json(body.schedule), name=body.name, registered_elsewhere=True
    )
    return schedule_answer(made, given.redaction)


@router.post("/sync", operation_id="sync_schedules", summary="Store what a program declares")
async def sync_schedules(body: SyncSchedulesBody, principal: Operator, given: Given) -> SyncSchedulesAnswer:
    """A step of a deploy: store the schedules in code. Only a newer deploy changes what is stored; a pause stays."""
    client = client_of(principal, given)
    declared = [
        replace(
            declare(
                client.calls.defaults,
                each.task_type,
                Schedule.from_json(each.schedule),
                each.name,
                registered_elsewhere=True,
            ),
            module=each.module,
        )
        for each in body.schedules
    ]
    done = await client.perform(client.calls.sync_declared(declared, body.deployed_at, body.modules))
    return SyncSchedulesAnswer(**{each.name: getattr(done, each.name) for each in fields(done)})


@router.get("/{name:path}/preview", operation_id="preview_schedule", summary="Next times", responses=refusals(404))
async def preview_schedule(
    name: ScheduleName,
    principal: Viewer,
    given: Given,
    count: Annotated[int, Query(ge=1, le=200, description="How many.")] = 20,
) -> PreviewAnswer:
    """What a schedule means in words, and its next times in its zone and UTC."""
    info = await client_of(principal, given).get_schedule(name)
    return preview_answer(await _preview(info.schedule, info.read_at, count))


@router.post("/preview", operation_id="preview_any_schedule", summary="What a schedule would do")
async def preview_any_schedule(body: PreviewBody, principal: Viewer, given: Given) -> PreviewAnswer:
    """What a schedule that need not be stored means in words, and its next times in its zone and UTC."""
    wanted = Schedule.from_json(body.schedule)
    return preview_answer(await _preview(wanted, await given.run(stored.now()), body.count))


async def _preview(schedule: Schedule, now: datetime, count: int) -> Preview:
    """In a thread: with many exclusions it takes a while, and other requests go on."""
    return await asyncio.to_thread(Preview.of, schedule, now, count)


@router.get("/{name:path}/explain", operation_id="explain_schedule", summary="Explain", responses=refusals(404))
async def explain_schedule(
    name: ScheduleName,
    principal: Viewer,
    given: Given,
    at: Annotated[AwareDatetime | None, Query(description="A slot: first what became of it.")] = None,
) -> ExplainScheduleAnswer:
    """Why a schedule does not run, and what became of a slot."""
    sentences = await client_of(principal, given).explain_schedule(name, at)
    return ExplainScheduleAnswer(sentences=[given.redaction.text(each) or "" for each in sentences])


@router.post("/{name:path}/pause", operation_id="pause_schedule", summary="Pause a schedule", responses=refusals(404))
async def pause_schedule(
    name: ScheduleName, body: PauseScheduleBody, principal: Operator, given: Given
) -> ScheduleAnswer:
    """Slots that pass until it is resumed are not run."""
    return schedule_answer(await client_of(principal, given).pause_schedule(name, body.note), given.redaction)


@router.post(
    "/{name:path}/resume", operation_id="resume_schedule", summary="Resume a schedule", responses=refusals(404)
)
async def resume_schedule(name: ScheduleName, principal: Operator, given: Given) -> ScheduleAnswer:
    """Its next slot lies in the future."""
    return schedule_answer(await client_of(principal, given).resume_schedule(name), given.redaction)


@router.post(
    "/{name:path}/run", operation_id="run_schedule", summary="Run it now", status_code=201, responses=refusals(404)
)
async def run_schedule(name: ScheduleName, principal: Operator, given: Given) -> RunScheduleAnswer:
    """Submit its task now. Its slots stay as they are."""
    return RunScheduleAnswer(task_id=await client_of(principal, given).run_schedule(name))


@router.post("/{name:path}/backfill", operation_id="backfill_schedule", summary="Backfill", responses=refusals(404))
async def backfill_schedule(
    name: ScheduleName, body: BackfillBody, principal: Operator, given: Given
) -> BackfillAnswer:
    """Run slots that have passed and have no task."""
    done = await client_of(principal, given).backfill_schedule(name, **dict(body))
    shown = {each.name: getattr(done, each.name) for each in fields(done)}
    return BackfillAnswer(**shown, dry_run=body.dry_run)


# Behind the others, because a name may have slashes.
@router.get("/{name:path}", operation_id="get_schedule", summary="Show a schedule", responses=refusals(404))
async def get_schedule(name: ScheduleName, principal: Viewer, given: Given) -> ScheduleAnswer:
    """All about one schedule."""
    return schedule_answer(await client_of(principal, given).get_schedule(name), given.redaction)


@router.patch("/{name:path}", operation_id="change_schedule", summary="Change a schedule", responses=refusals(404))
async def change_schedule(
    name: ScheduleName, body: ChangeScheduleBody, principal: Operator, given: Given
) -> ScheduleAnswer:
    """Change the fields that are given. It goes on from now, and never runs at once. A mask keeps what it hides."""
    client = client_of(principal, given)
    wanted = given.redaction.restored_schedule(body.schedule, await client.get_schedule(name))
    if body.replace:
        changed = await client.change_schedule(name, Schedule.from_json(wanted))
    else:
        changed = await client.change_schedule(name, **wanted)
    return schedule_answer(changed, given.redaction)


@router.delete(
    "/{name:path}",
    operation_id="delete_schedule",
    summary="Delete a schedule",
    status_code=204,
    responses=refusals(404),
)
async def delete_schedule(name: ScheduleName, principal: Operator, given: Given) -> Response:
    """Its tasks stay. One in code comes back at the next deploy."""
    await client_of(principal, given).delete_schedule(name)
    return Response(status_code=204)

"""Pauses: queues and names of which nothing begins. What runs goes on."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from tasklib.server.access import client_of
from tasklib.server.fleet_response_models import PauseAnswer, PauseChangeAnswer, PausesAnswer
from tasklib.server.request_models import Name, PauseBody
from tasklib.server.routing import Given, Operator, Viewer

router = APIRouter(prefix="/api/v1/pauses", tags=["pauses"])


@router.get("", operation_id="list_pauses", summary="List the pauses")
async def list_pauses(principal: Viewer, given: Given) -> PausesAnswer:
    """The queues and names that are paused."""
    found = await client_of(principal, given).pauses()
    return PausesAnswer(pauses=[PauseAnswer.model_validate(paused) for paused in found])


@router.post(
    "",
    operation_id="pause",
    summary="Pause a queue or a name",
    status_code=201,
    responses={200: {"model": PauseChangeAnswer, "description": "It was paused already."}},
)
async def pause(body: PauseBody, principal: Operator, given: Given, response: Response) -> PauseChangeAnswer:
    """Let no worker begin tasks of this queue, or of this name, until it is resumed."""
    changed = await client_of(principal, given).pause(queue=body.queue, name=body.name)
    if not changed:
        response.status_code = 200
    return _changed(body.queue, body.name, changed)


@router.delete("", operation_id="resume", summary="Resume a queue or a name")
async def resume(
    principal: Operator,
    given: Given,
    queue: Annotated[Name | None, Query(description="Either this ...")] = None,
    name: Annotated[Name | None, Query(description="... or this.")] = None,
) -> PauseChangeAnswer:
    """End a pause; idle workers claim at once."""
    changed = await client_of(principal, given).resume(queue=queue, name=name)
    return _changed(queue, name, changed)


def _changed(queue: str | None, name: str | None, changed: bool) -> PauseChangeAnswer:
    kind = "queue" if queue is not None else "name"
    return PauseChangeAnswer(kind=kind, value=queue or name or "", changed=changed)

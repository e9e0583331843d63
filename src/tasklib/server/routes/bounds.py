"""Bounds of queues and task names: beyond them submissions are refused with 429."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from tasklib.errors import InvalidOption
from tasklib.server.access import client_of
from tasklib.server.bound_models import BoundChangeAnswer, BoundsAnswer, BoundsBody, NameBoundAnswer, QueueBoundAnswer
from tasklib.server.request_models import Name
from tasklib.server.routing import Given, Operator, Viewer

router = APIRouter(prefix="/api/v1/bounds", tags=["bounds"])


@router.get("", operation_id="list_bounds", summary="List the bounds of queues and names")
async def list_bounds(principal: Viewer, given: Given) -> BoundsAnswer:
    """The queues and the task names that have bounds."""
    client = client_of(principal, given)
    return BoundsAnswer(
        queues=[QueueBoundAnswer.model_validate(bound) for bound in await client.queue_bounds()],
        names=[NameBoundAnswer.model_validate(bound) for bound in await client.name_bounds()],
    )


@router.put("", operation_id="set_bounds", summary="Bound a queue or a name")
async def set_bounds(body: BoundsBody, principal: Operator, given: Given) -> BoundChangeAnswer:
    """Refuse submissions while too much waits. Replaces the bounds that the queue or name has."""
    client = client_of(principal, given)
    wait, pending = body.max_wait, body.max_pending
    if body.queue is not None:
        changed = await client.bound_queue(body.queue, max_wait=wait, max_pending=pending)
        return BoundChangeAnswer(kind="queue", value=body.queue, changed=changed)
    assert body.name is not None
    changed = await client.bound_name(body.name, max_wait=wait, max_pending=pending)
    return BoundChangeAnswer(kind="name", value=body.name, changed=changed)


@router.delete("", operation_id="remove_bounds", summary="Remove the bounds of a queue or a name")
async def remove_bounds(
    principal: Operator,
    given: Given,
    queue: Annotated[Name | None, Query(description="Either this ...")] = None,
    name: Annotated[Name | None, Query(description="... or this.")] = None,
) -> BoundChangeAnswer:
    """Submissions are not refused any more."""
    client = client_of(principal, given)
    if queue is not None and name is None:
        return BoundChangeAnswer(kind="queue", value=queue, changed=await client.bound_queue(queue))
    if name is not None and queue is None:
        return BoundChangeAnswer(kind="name", value=name, changed=await client.bound_name(name))
    raise InvalidOption("give either queue or name, and only one of them.")

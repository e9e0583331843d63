"""The worker protocol: places in limits, for blocks in the code of tasks. See docs/reference/worker-protocol.md."""

from __future__ import annotations

from fastapi import APIRouter

from tasklib.server.openapi import refusals
from tasklib.server.problems import Problem
from tasklib.server.routes.internal import Given, WorkerId, WorkerPrincipal
from tasklib.server.worker_models import PlaceBody, PlaceLeftAnswer, PlaceLeftBody, PlaceTakenAnswer

router = APIRouter(prefix="/internal/workers", tags=["worker protocol"])


@router.post(
    "/{worker_id}/place",
    operation_id="take_place",
    responses=refusals(404, 409),
    summary="Ask for room in a limit",
)
async def take_place(
    worker_id: WorkerId, body: PlaceBody, principal: WorkerPrincipal, given: Given
) -> PlaceTakenAnswer:
    """For a part of a running task. Doesn't wait: ask again after a pause.

    Asked again with the same `block`, it takes nothing twice.
    """
    member = await given.remote.members.find(principal.token_id, worker_id)
    answer = await given.remote.places.take_place(member.id, body.lease, body.request)
    if answer is None:
        raise Problem(409, "stale_attempt", "The attempt is not this worker's", "It was lost, or has ended.")
    return PlaceTakenAnswer(outcome=answer.outcome, retry_in_seconds=answer.seconds)


@router.post(
    "/{worker_id}/place/leave",
    operation_id="leave_place",
    responses=refusals(404),
    summary="Give room in a limit back",
)
async def leave_place(
    worker_id: WorkerId, body: PlaceLeftBody, principal: WorkerPrincipal, given: Given
) -> PlaceLeftAnswer:
    """What a block has taken is free again. If the attempt has ended, it is already."""
    member = await given.remote.members.find(principal.token_id, worker_id)
    await given.remote.places.leave_place(member.id, body.lease, body.block)
    return PlaceLeftAnswer(acknowledged=True)

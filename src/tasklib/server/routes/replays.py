"""Replays as jobs: begin, watch, pause, resume and stop."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from tasklib.client.replays import MOST_PER_MINUTE
from tasklib.server.access import client_of
from tasklib.server.openapi import refusals
from tasklib.server.redaction import Redaction
from tasklib.server.replay_models import ReplayAnswer, ReplaysAnswer, StartReplayBody
from tasklib.server.routing import Given, Limit, Operator, Viewer, page_size
from tasklib.store.replays import Replay

router = APIRouter(prefix="/api/v1/replays", tags=["dead letters"])
Fingerprint = Annotated[str | None, Query(pattern="^[0-9a-f]{6,32}$", description="Only dead letters of this cause.")]
NewRate = Annotated[
    float | None, Query(gt=0, le=MOST_PER_MINUTE, description="The rate per minute from now on; null: unchanged.")
]


@router.post("", operation_id="start_replay", summary="Replay dead letters in the background", status_code=201)
async def start_replay(body: StartReplayBody, principal: Operator, given: Given) -> ReplayAnswer:
    """Those that match, the oldest first, at a rate; one of them first. The leader of the fleet does it."""
    begun = await client_of(principal, given, to_change=True).start_replay(
        body.filter(), everything=body.everything, per_minute=body.per_minute, canary=body.canary
    )
    return shown(begun, given.redaction)


@router.get("", operation_id="list_replays", summary="List replays")
async def list_replays(
    principal: Viewer, given: Given, fingerprint: Fingerprint = None, limit: Limit = None
) -> ReplaysAnswer:
    """The newest first, with what became of their tasks."""
    found = await client_of(principal, given).replays(fingerprint=fingerprint, limit=page_size(limit, given))
    return ReplaysAnswer(replays=[shown(replay, given.redaction) for replay in found])


@router.get("/{replay_id}", operation_id="get_replay", summary="Get a replay", responses=refusals(404))
async def get_replay(replay_id: UUID, principal: Viewer, given: Given) -> ReplayAnswer:
    """Its progress, and what became of its tasks."""
    return shown(await client_of(principal, given).get_replay(replay_id), given.redaction)


@router.post("/{replay_id}/pause", operation_id="pause_replay", summary="Pause a replay", responses=refusals(404))
async def pause_replay(replay_id: UUID, principal: Operator, given: Given) -> ReplayAnswer:
    """Replay no more until it is resumed. What was replayed goes on."""
    return shown(await client_of(principal, given, to_change=True).pause_replay(replay_id), given.redaction)


@router.post("/{replay_id}/resume", operation_id="resume_replay", summary="Resume a replay", responses=refusals(404))
async def resume_replay(replay_id: UUID, principal: Operator, given: Given, per_minute: NewRate = None) -> ReplayAnswer:
    """Go on, perhaps at another rate. If the canary failed, one more task is tried first."""
    client = client_of(principal, given, to_change=True)
    return shown(await client.resume_replay(replay_id, per_minute=per_minute), given.redaction)


@router.post("/{replay_id}/stop", operation_id="stop_replay", summary="Stop a replay", responses=refusals(404))
async def stop_replay(replay_id: UUID, principal: Operator, given: Given) -> ReplayAnswer:
    """End it for good. What was replayed goes on, the other dead letters stay."""
    return shown(await client_of(principal, given, to_change=True).stop_replay(replay_id), given.redaction)


def shown(replay: Replay, redaction: Redaction) -> ReplayAnswer:
    return ReplayAnswer.model_validate(redaction.replay(replay))

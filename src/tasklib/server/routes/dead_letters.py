"""Dead letters: list, group by cause, replay and purge many at once."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from tasklib.client.cursors import cursor, moment, place_of
from tasklib.models import Task
from tasklib.server import filters
from tasklib.server.access import client_of
from tasklib.server.fleet_response_models import GroupAnswer, GroupsAnswer, TakenAnswer
from tasklib.server.request_models import MAX_TAKEN, ReplayDeadLettersBody
from tasklib.server.response_models import TaskPage
from tasklib.server.routing import Cursor, Given, Limit, Operator, Reader, Submitter, page_size
from tasklib.server.task_response import listed, shown_page
from tasklib.store.dead_letters import DeadLetterPlace

router = APIRouter(prefix="/api/v1/dead-letters", tags=["dead letters"])


@router.get("", operation_id="list_dead_letters", summary="List dead letters", response_model=TaskPage)
async def list_dead_letters(
    principal: Reader,
    given: Given,
    chosen: filters.DeadLetters,
    limit: Limit = None,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = None,
) -> Response:
    """One page of those that fit every filter, the latest first. Large values are left out, as in a list of tasks."""
    client = client_of(principal, given)
    size = page_size(limit, given)
    place = None if cursor_ is None else _place(cursor_)
    call = client.calls.dead_letters(chosen, after=place, limit=size + 1)
    found = await client.perform(listed(call, given.settings.max_list_value_bytes))
    return await shown_page(found, size, principal, given, _following)


@router.get("/groups", operation_id="list_dead_letter_groups", summary="Group dead letters by cause")
async def list_dead_letter_groups(
    principal: Reader, given: Given, chosen: filters.DeadLetters, limit: Limit = None
) -> GroupsAnswer:
    """One name and, but for ids and numbers, one error make a group; the most frequent first."""
    found = await client_of(principal, given).dead_letter_groups(chosen, limit=page_size(limit, given))
    return GroupsAnswer(groups=[GroupAnswer.model_validate(group) for group in given.redaction.errors(found)])


@router.post("/replay", operation_id="replay_dead_letters", summary="Replay dead letters")
async def replay_dead_letters(body: ReplayDeadLettersBody, principal: Submitter, given: Given) -> TakenAnswer:
    """Replay those that match, the oldest first. A submitter: only its own dead letters."""
    client = client_of(principal, given, to_change=True)
    ids = await client.replay_dead_letters(
        body.filter(), everything=body.everything, limit=body.limit, dry_run=body.dry_run
    )
    return TakenAnswer(count=len(ids), task_ids=ids, more=len(ids) == body.limit, dry_run=body.dry_run)


@router.delete("", operation_id="purge_dead_letters", summary="Purge dead letters")
async def purge_dead_letters(
    principal: Operator,
    given: Given,
    chosen: filters.DeadLetters,
    everything: Annotated[bool, Query(description="Has to be true where there is no filter.")] = False,
    limit: Annotated[int, Query(ge=1, le=MAX_TAKEN, description="There may be more: repeat the request.")] = 1000,
    dry_run: Annotated[bool, Query(description="Delete nothing; say what would be deleted.")] = False,
) -> TakenAnswer:
    """Delete those that fit for good, the oldest first."""
    ids = await client_of(principal, given).purge_dead_letters(
        chosen, everything=everything, limit=limit, dry_run=dry_run
    )
    return TakenAnswer(count=len(ids), task_ids=ids, more=len(ids) == limit, dry_run=dry_run)


def _following(last: Task) -> str:
    assert last.completed_at is not None
    return cursor("dead_letters", last.completed_at.isoformat(), str(last.id))


def _place(text: str) -> DeadLetterPlace:
    completed_at, task_id = place_of("dead_letters", text, moment, UUID)
    return DeadLetterPlace(completed_at, str(task_id))

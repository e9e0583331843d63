"""Saved searches: shared by all who use the database."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from tasklib.client.saved_searches import LONGEST_NAME
from tasklib.server.access import client_of
from tasklib.server.fleet_response_models import SavedSearchAnswer, SavedSearchChangeAnswer, SavedSearchesAnswer
from tasklib.server.request_models import SavedSearchBody
from tasklib.server.routing import Given, Operator, Viewer
from tasklib.server.task_response import refuse_to_save, shown_searches

router = APIRouter(prefix="/api/v1/searches", tags=["searches"])
SearchName = Annotated[str, Query(min_length=1, max_length=LONGEST_NAME, description="The name of a saved search.")]


@router.get("", operation_id="list_searches", summary="List the saved searches")
async def list_searches(principal: Viewer, given: Given) -> SavedSearchesAnswer:
    """All saved searches, by name."""
    found = shown_searches(await client_of(principal, given).saved_searches(), given)
    return SavedSearchesAnswer(searches=[SavedSearchAnswer.model_validate(saved) for saved in found])


@router.put("", operation_id="save_search", summary="Save a search")
async def save_search(body: SavedSearchBody, principal: Operator, given: Given) -> SavedSearchChangeAnswer:
    """Save a search under a name, in place of the one it had."""
    refuse_to_save(body.search, given)
    changed = await client_of(principal, given, to_change=True).save_search(body.name, body.search)
    return SavedSearchChangeAnswer(name=body.name, changed=changed)


@router.delete("", operation_id="delete_search", summary="Delete a saved search")
async def delete_search(principal: Operator, given: Given, name: SearchName) -> SavedSearchChangeAnswer:
    """Nothing else changes."""
    changed = await client_of(principal, given, to_change=True).delete_search(name)
    return SavedSearchChangeAnswer(name=name, changed=changed)

"""Limits: how many tasks run at a time, or begin within a time, over the whole fleet."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from tasklib.server.access import client_of
from tasklib.server.limit_models import LimitAnswer, LimitBody, LimitChangeAnswer, LimitsAnswer
from tasklib.server.request_models import Name
from tasklib.server.routing import Given, Operator, Viewer

router = APIRouter(prefix="/api/v1/limits", tags=["limits"])
Named = Annotated[Name, Query(description="`queue:mail`, `name:send_email`, `share:acme`, `serial:ledger`, `stripe`.")]


@router.get("", operation_id="list_limits", summary="List the limits")
async def list_limits(principal: Viewer, given: Given) -> LimitsAnswer:
    """All limits, by name, with how many tasks hold places in them."""
    found = await client_of(principal, given).limits()
    return LimitsAnswer(limits=[LimitAnswer.model_validate(limit) for limit in found])


@router.put("", operation_id="set_limit", summary="Set a limit")
async def set_limit(body: LimitBody, principal: Operator, given: Given) -> LimitChangeAnswer:
    """Set all bounds of a limit, in place of what it was. Takes effect with the next claim; what runs goes on."""
    values = body.model_dump(exclude={"name"})
    changed = await client_of(principal, given).set_limit(body.name, **values)
    return LimitChangeAnswer(name=body.name, changed=changed)


@router.delete("", operation_id="remove_limit", summary="Remove a limit")
async def remove_limit(principal: Operator, given: Given, name: Named) -> LimitChangeAnswer:
    """One that the code declares stays off until it is reset."""
    return LimitChangeAnswer(name=name, changed=await client_of(principal, given).remove_limit(name))


@router.post("/reset", operation_id="reset_limit", summary="Reset a limit")
async def reset_limit(principal: Operator, given: Given, name: Named) -> LimitChangeAnswer:
    """Let a limit be as the code declares it, from now on."""
    return LimitChangeAnswer(name=name, changed=await client_of(principal, given).reset_limit(name))

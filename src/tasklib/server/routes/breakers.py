"""Circuit breakers: task names that wait after too many failures."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from tasklib.server.access import client_of
from tasklib.server.breaker_models import BreakerAnswer, BreakerBody, BreakerChangeAnswer, BreakersAnswer
from tasklib.server.request_models import Name
from tasklib.server.routing import Given, Operator, Viewer
from tasklib.tasks.breakers import MAX_PAUSE_SECONDS

router = APIRouter(prefix="/api/v1/breakers", tags=["breakers"])
Named = Annotated[Name, Query(description="The name of the task function.")]
Length = Annotated[float | None, Query(gt=0, le=MAX_PAUSE_SECONDS, description="null: until it is closed.")]


@router.get("", operation_id="list_breakers", summary="List the circuit breakers")
async def list_breakers(principal: Viewer, given: Given) -> BreakersAnswer:
    """All breakers with their states, by name."""
    found = await client_of(principal, given).breakers()
    return BreakersAnswer(breakers=[BreakerAnswer.model_validate(breaker) for breaker in found])


@router.put("", operation_id="set_breaker", summary="Set a circuit breaker")
async def set_breaker(body: BreakerBody, principal: Operator, given: Given) -> BreakerChangeAnswer:
    """Set the breaker of a task name, in place of what it was. Its state stays."""
    values = body.model_dump(exclude={"name"})
    changed = await client_of(principal, given).set_breaker(body.name, **values)
    return BreakerChangeAnswer(name=body.name, changed=changed)


@router.delete("", operation_id="remove_breaker", summary="Remove a circuit breaker")
async def remove_breaker(principal: Operator, given: Given, name: Named) -> BreakerChangeAnswer:
    """One that the code declares stays off until it is reset."""
    return BreakerChangeAnswer(name=name, changed=await client_of(principal, given).remove_breaker(name))


@router.post("/reset", operation_id="reset_breaker", summary="Reset a circuit breaker")
async def reset_breaker(principal: Operator, given: Given, name: Named) -> BreakerChangeAnswer:
    """Let a breaker be as the code declares it, from now on."""
    return BreakerChangeAnswer(name=name, changed=await client_of(principal, given).reset_breaker(name))


@router.post("/open", operation_id="open_breaker", summary="Open a circuit breaker")
async def open_breaker(principal: Operator, given: Given, name: Named, seconds: Length = None) -> BreakerChangeAnswer:
    """Tasks of the name wait for so many seconds, then some probe; or until the breaker is closed."""
    return BreakerChangeAnswer(name=name, changed=await client_of(principal, given).open_breaker(name, seconds))


@router.post("/close", operation_id="close_breaker", summary="Close a circuit breaker")
async def close_breaker(principal: Operator, given: Given, name: Named) -> BreakerChangeAnswer:
    """Tasks of the name run, and earlier failures don't count any more."""
    return BreakerChangeAnswer(name=name, changed=await client_of(principal, given).close_breaker(name))

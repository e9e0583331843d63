"""Routes that only tests have: one for each kind of access."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends
from fastapi.responses import StreamingResponse

from tasklib.errors import DatabaseUnavailable
from tasklib.server.access import Principal, Role, allow, services
from tasklib.server.problems import Problem
from tasklib.server.services import Services

router = APIRouter(prefix="/api/test")


@router.get("/viewer")
async def for_viewers(principal: Annotated[Principal, Depends(allow(Role.VIEWER))]) -> dict[str, Any]:
    return {"actor": principal.actor, "queues": principal.queues, "only_own": principal.only_own}


@router.post("/submitter")
async def for_submitters(
    principal: Annotated[Principal, Depends(allow(Role.SUBMITTER))], body: Annotated[Any, Body()] = None
) -> dict[str, Any]:
    return {"actor": principal.actor, "only_own": principal.only_own}


@router.get("/worker")
async def for_workers(principal: Annotated[Principal, Depends(allow(Role.WORKER))]) -> dict[str, Any]:
    return {"queues": principal.queues}


@router.get("/forgotten")
async def for_whom() -> str:
    return "nobody said who may read this"


@router.get("/broken")
async def broken(principal: Annotated[Principal, Depends(allow(Role.VIEWER))]) -> None:
    raise RuntimeError("the password is hunter2")


@router.get("/teapot")
async def teapot(principal: Annotated[Principal, Depends(allow(Role.VIEWER))]) -> None:
    raise Problem(418, "teapot", "I am one", "Short and stout.", spout="here")


@router.get("/wait")
async def wait(
    principal: Annotated[Principal, Depends(allow(Role.VIEWER))], services: Annotated[Services, Depends(services)]
) -> dict[str, bool]:
    """A long poll."""
    async with asyncio.timeout(120):
        while not services.notifier.is_stopped:
            await services.notifier.wait(60)
    return {"stopped": True}


@router.get("/cut")
async def cut(principal: Annotated[Principal, Depends(allow(Role.VIEWER))]) -> StreamingResponse:
    async def parts() -> AsyncIterator[str]:
        yield "so far"
        raise DatabaseUnavailable("gone")

    return StreamingResponse(parts())

"""`/health/live` and `/health/ready`: for supervisors and load balancers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from tasklib.server.access import anybody, services
from tasklib.server.problems import Problem
from tasklib.server.services import Services, require_schema

router = APIRouter(prefix="/health", tags=["health"], dependencies=[Depends(anybody)])


class Health(BaseModel):
    """How the server is."""

    status: str
    version: str


@router.get("/live", summary="Whether the server runs")
async def live(services: Annotated[Services, Depends(services)]) -> Health:
    """Answers as long as the server does; the database is not asked."""
    return Health(status="live", version=services.version)


@router.get("/ready", summary="Whether requests can be served")
async def ready(services: Annotated[Services, Depends(services)]) -> Health:
    """The database answers and has the schema of this version."""
    if services.notifier.is_stopped:
        raise Problem(503, "stopping", "The server is stopping", "Ask another one.")
    await require_schema(services.config, services.client)
    return Health(status="ready", version=services.version)

"""`/openapi.json`: the API for machines."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from tasklib.server.access import anybody
from tasklib.server.openapi import document

router = APIRouter(dependencies=[Depends(anybody)])


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> JSONResponse:
    """It contains nothing that is not in the public documentation."""
    return JSONResponse(document(request.app))

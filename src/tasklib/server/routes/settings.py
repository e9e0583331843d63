"""The settings of the fleet that change at run time."""

from __future__ import annotations

from fastapi import APIRouter

from tasklib.server.access import client_of
from tasklib.server.fleet_response_models import SettingsAnswer
from tasklib.server.request_models import SettingsBody
from tasklib.server.routing import Given, Operator, Viewer

router = APIRouter(prefix="/api/v1/settings", tags=["settings"])


@router.get("", operation_id="get_settings", summary="Read the settings")
async def get_settings(principal: Viewer, given: Given) -> SettingsAnswer:
    """The settings stored for the fleet, else those of this server's configuration."""
    return SettingsAnswer.model_validate(await client_of(principal, given).settings())


@router.patch("", operation_id="change_settings", summary="Change settings")
async def change_settings(body: SettingsBody, principal: Operator, given: Given) -> SettingsAnswer:
    """For every worker, from its next claim on. Null gives a setting back to each program's configuration."""
    changes = body.model_dump(exclude_unset=True)
    return SettingsAnswer.model_validate(await client_of(principal, given).change_settings(**changes))

"""The audit: who cancelled, replayed, purged, paused, drained, changed a setting or a token."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from tasklib.client.cursors import cursor, place_of
from tasklib.server.access import client_of
from tasklib.server.fleet_response_models import AuditAnswer, AuditPage
from tasklib.server.request_models import Text
from tasklib.server.routing import Admin, Cursor, Given, Limit, page_size
from tasklib.store.audit import Action

router = APIRouter(prefix="/api/v1/audit", tags=["audit"])


@router.get("", operation_id="list_audit", summary="Read the audit")
async def list_audit(
    principal: Admin,
    given: Given,
    action: Annotated[Action | None, Query()] = None,
    actor: Annotated[Text | None, Query()] = None,
    target: Annotated[Text | None, Query(description="An id, `queue:mail`, `name:send_email`.")] = None,
    limit: Limit = None,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = None,
) -> AuditPage:
    """One page of the records that fit every filter, the latest first."""
    size = page_size(limit, given)
    found = await client_of(principal, given).audit(
        action=action,
        actor=actor,
        target=target,
        before=None if cursor_ is None else place_of("audit", cursor_, int)[0],
        limit=size + 1,
    )
    page = [AuditAnswer.model_validate(record) for record in given.redaction.records(found[:size])]
    return AuditPage(records=page, next=cursor("audit", page[-1].id) if len(found) > size else None)

"""For admins: the fleet's settings, API tokens, and the audit."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Annotated
from uuid import UUID

from fastapi import Form, Request
from starlette.responses import Response

from tasklib.errors import TaskLibError
from tasklib.server.access import client_of
from tasklib.server.dashboard.screens import Admin, Serving, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.server.dashboard.targets import page_of
from tasklib.store.audit import Action
from tasklib.store.tokens import Role

router = screen_router()

_AUDIT_PAGE = 50
LIFETIMES = {"": "Never", "1": "In a day", "7": "In a week", "30": "In 30 days", "90": "In 90 days", "365": "In a year"}
ROLES = {
    Role.VIEWER: "sees everything, changes nothing",
    Role.APPROVER: "also approves and rejects what tasks ask for",
    Role.OPERATOR: "also cancels, replays, pauses, drains",
    Role.ADMIN: "also changes settings and tokens",
    Role.SUBMITTER: "submits tasks, and sees its own",
    Role.WORKER: "takes tasks and returns results over HTTP",
}


@router.get("/settings")
async def settings(request: Request, principal: Admin, services: Serving) -> Response:
    return page(
        request,
        "settings.html",
        settings=await client_of(principal, services).settings(),
        medium_default=services.config.promote_to_medium_after_seconds,
        high_default=services.config.promote_to_high_after_seconds,
        retention=services.config.retention,
        dead_letter_days=services.config.dead_letter_days,
    )


@router.post("/settings")
async def change_settings(
    request: Request,
    principal: Admin,
    services: Serving,
    medium: Annotated[str, Form(max_length=40)] = "",
    high: Annotated[str, Form(max_length=40)] = "",
) -> Response:
    """An empty field goes back to each program's configuration."""
    try:
        await client_of(principal, services).change_settings(
            promote_to_medium_after_seconds=_number(medium), promote_to_high_after_seconds=_number(high)
        )
    except (TaskLibError, ValueError) as e:
        return done(request, "/settings", str(e), "bad")
    return done(request, "/settings", "Changed. It applies from each worker's next claim on.")


@router.get("/tokens")
async def tokens(request: Request, principal: Admin, services: Serving) -> Response:
    return await _tokens(request, principal, services)


@router.post("/tokens")
async def create_token(
    request: Request,
    principal: Admin,
    services: Serving,
    name: Annotated[str, Form(max_length=1000)] = "",
    roles: Annotated[list[str] | None, Form()] = None,
    queues: Annotated[str, Form(max_length=20_000)] = "",
    days: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """The text is in this one answer, and nowhere else. So this is no redirect: nothing of it is kept for the next."""
    limits = [queue.strip() for queue in queues.split(",") if queue.strip()]
    try:
        new = await client_of(principal, services).create_token(
            name,
            roles=roles or [],
            queues=limits or None,
            expires_in=timedelta(days=int(days)) if days in LIFETIMES and days else None,
        )
    except TaskLibError as e:
        return done(request, "/tokens", str(e), "bad")
    if not principal.is_anonymous:
        services.tokens.forget()
    return await _tokens(request, principal, services, new_name=new.info.name, new_text=new.text)


@router.post("/tokens/revoke")
async def revoke_token(request: Request, principal: Admin, services: Serving, id: Annotated[UUID, Form()]) -> Response:
    revoked = await client_of(principal, services).revoke_token(id)
    services.tokens.forget()
    return done(request, "/tokens", f"Revoked {revoked.name} ({revoked.prefix}). It can't be used any more.")


@router.get("/audit")
async def audit(
    request: Request,
    principal: Admin,
    services: Serving,
    before: int | None = None,
    action: str | None = None,
    actor: str | None = None,
    target: str | None = None,
) -> Response:
    known = action if action in set(Action) else None
    records = await client_of(principal, services).audit(
        action=known, actor=actor or None, target=target or None, before=before, limit=_AUDIT_PAGE + 1
    )
    return page(
        request,
        "audit.html",
        records=services.redaction.records(records[:_AUDIT_PAGE]),
        older={"before": records[_AUDIT_PAGE - 1].id} if len(records) > _AUDIT_PAGE else None,
        newer={"before": None} if before is not None else None,
        action=known or "",
        actor=actor or "",
        target=target or "",
        actions=list(Action),
        page_of=page_of,
    )


async def _tokens(
    request: Request, principal: Admin, services: Serving, new_name: str = "", new_text: str = ""
) -> Response:
    found = await client_of(principal, services).tokens()
    return page(
        request,
        "tokens.html",
        tokens=sorted(found, key=lambda t: (not t.is_usable, t.name, t.created_at)),
        new_name=new_name,
        new_text=new_text,
        roles=ROLES,
        lifetimes=LIFETIMES,
    )


def _number(text: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("A threshold is a number of seconds; empty for the configuration's own.")
    return value

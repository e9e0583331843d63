"""Dead letters by cause: look into a cause, replay or purge it, or some of its tasks."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Form, Path, Query, Request
from starlette.responses import Response

from tasklib.errors import InvalidOption
from tasklib.formatting import count
from tasklib.server.access import client_of
from tasklib.server.dashboard.samples import sample_of
from tasklib.server.dashboard.screens import Operator, Reader, Serving, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.store.dead_letters import DeadLetterPlace

router = screen_router()

PAGE = 50
MOST_GROUPS = 100
MOST_CHOSEN = 500
MOST_AT_ONCE = 5_000
"""How many one click replays or deletes; the next goes on."""
_DONE = {"replay": "Replayed", "purge": "Deleted"}
Fingerprint = Annotated[str, Path(pattern="^[0-9a-f]{6,32}$")]


@router.get("/dead-letters")
async def dead_letters(request: Request, principal: Reader, services: Serving) -> Response:
    found = await client_of(principal, services).latest_dead_letter_groups(limit=MOST_GROUPS)
    found = replace(found, groups=services.redaction.errors(found.groups))
    total = sum(group.count for group in found.groups)
    return page(request, "dead_letters.html", found=found, total=total)


@router.get("/dead-letters/{fingerprint}")
async def group(
    request: Request,
    principal: Reader,
    services: Serving,
    fingerprint: Fingerprint,
    at: Annotated[datetime | None, Query()] = None,
    after: Annotated[UUID | None, Query()] = None,
) -> Response:
    client = client_of(principal, services)
    place = DeadLetterPlace(at, str(after)) if at is not None and after is not None else None
    found = await client.dead_letters_alike(fingerprint, after=place, limit=PAGE)
    found = replace(found, tasks=services.redaction.found(found.tasks))
    older = {"at": found.after.completed_at.isoformat(), "after": found.after.id} if found.after else None
    sample = await sample_of(principal, services, found.tasks[0].id if found.tasks else None)
    return page(
        request, "dead_letter_group.html", fingerprint=fingerprint, found=found, older=older, is_first=place is None,
        **sample,
    )  # fmt: skip


@router.post("/dead-letters/{fingerprint}")
async def act_on_group(
    request: Request,
    principal: Operator,
    services: Serving,
    fingerprint: Fingerprint,
    action: Annotated[str, Form(pattern="^(replay|purge)$")],
    id: Annotated[list[UUID] | None, Form(max_length=MOST_CHOSEN)] = None,
    scope: Annotated[str, Form(pattern="^(group|chosen)$")] = "chosen",
) -> Response:
    """The whole group, or those of it that were chosen."""
    client = client_of(principal, services, to_change=True)
    back = f"/dead-letters/{fingerprint}"
    if scope == "chosen" and not id:
        return done(request, back, "No task was selected.", "warn")
    ids = id if scope == "chosen" else None
    call = client.replay_dead_letters if action == "replay" else client.purge_dead_letters
    try:
        taken = await call(ids=ids, fingerprint=fingerprint, limit=MOST_AT_ONCE)
    except InvalidOption as e:
        return done(request, back, str(e), "bad")
    if not taken:
        return done(request, "/dead-letters", "Nothing changed: none of these is a dead letter any more.", "warn")
    said = f"{_DONE[action]} {count(len(taken), 'dead letter')}."
    if len(taken) >= MOST_AT_ONCE:
        return done(request, back, f"{said} There may be more: repeat this to continue.", "warn")
    return done(request, "/dead-letters" if scope == "group" else back, said)

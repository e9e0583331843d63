"""Replays as jobs: begin one from a cause, watch it, pause, resume and stop it."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Form, Request
from starlette.responses import Response

from tasklib.errors import InvalidOption
from tasklib.server.access import client_of
from tasklib.server.dashboard.screens import Operator, Serving, Viewer, screen_router
from tasklib.server.dashboard.shell import done, page

router = screen_router()

PAGE = 50
_SAID = {
    "pause": "Paused. What was replayed goes on.",
    "resume": "The replay goes on.",
    "stop": "Stopped. The other dead letters stay as they are.",
}


@router.get("/replays")
async def replays(request: Request, principal: Viewer, services: Serving) -> Response:
    found = await client_of(principal, services).replays(limit=PAGE)
    return page(request, "replays.html", replays=[services.redaction.replay(each) for each in found])


@router.get("/replays/{replay_id}")
async def replay(request: Request, principal: Viewer, services: Serving, replay_id: UUID) -> Response:
    found = await client_of(principal, services).get_replay(replay_id)
    return page(request, "replay.html", replay=services.redaction.replay(found))


@router.post("/replays")
async def start(
    request: Request,
    principal: Operator,
    services: Serving,
    fingerprint: Annotated[str, Form(pattern="^[0-9a-f]{6,32}$")],
    per_minute: Annotated[str, Form()] = "",
    canary: Annotated[str, Form()] = "",
) -> Response:
    """All dead letters of one cause."""
    client = client_of(principal, services, to_change=True)
    try:
        begun = await client.start_replay(fingerprint=fingerprint, per_minute=_rate(per_minute), canary=bool(canary))
    except InvalidOption as e:
        return done(request, f"/failures/{fingerprint}", str(e), "bad")
    return done(request, f"/replays/{begun.id}", "The replay has begun: the leader takes the first within seconds.")


@router.post("/replays/{replay_id}/{action}")
async def act(
    request: Request,
    principal: Operator,
    services: Serving,
    replay_id: UUID,
    action: str,
    per_minute: Annotated[str, Form()] = "",
) -> Response:
    client = client_of(principal, services, to_change=True)
    back = f"/replays/{replay_id}"
    try:
        match action:
            case "pause":
                await client.pause_replay(replay_id)
            case "resume":
                await client.resume_replay(replay_id, per_minute=_rate(per_minute))
            case "stop":
                await client.stop_replay(replay_id)
            case _:
                return done(request, back, "A replay can be paused, resumed and stopped.", "bad")
    except InvalidOption as e:
        return done(request, back, str(e), "warn")
    return done(request, back, _SAID[action])


def _rate(text: str) -> float | None:
    try:
        return float(text) if text.strip() else None
    except ValueError:
        raise InvalidOption(f"The rate is a number of tasks per minute, not {text!r}.") from None

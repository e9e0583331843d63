"""Waiting for a task: a bounded long poll for its result, and a stream of its changes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request, Response

from tasklib.client.async_clients import AsyncClient
from tasklib.client.blobs import with_result
from tasklib.client.validation import known
from tasklib.server.access import Principal, client_of
from tasklib.server.caps import EventStream, slot_of
from tasklib.server.openapi import refusals
from tasklib.server.problems import Problem
from tasklib.server.response_models import OutcomeAnswer
from tasklib.server.routing import Given, Reader, Reveal
from tasklib.server.services import Services
from tasklib.server.task_response import redaction_for, shown_listed, shown_outcome
from tasklib.states import TaskState
from tasklib.store import lookup
from tasklib.tasks.blobs import is_pointer

router = APIRouter(prefix="/api/v1/tasks", tags=["tasks"])

KEEP_ALIVE_SECONDS = 15.0
"""A stream is never silent for longer: proxies close what is."""
STREAM_SECONDS = 300.0
"""A stream ends after this long, and its reader comes again with a token that is still good."""

_EVENTS = """event: task
id: 5d41402abc4b2a76b9719d911017c592
data: {"task_id": "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f", "status": "running", ...}

: still here

event: task
id: 7d793037a0760186574b0282f2f435e7
data: {"task_id": "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f", "status": "completed", ...}

"""


_EVENT = {
    "type": "object",
    "description": "One event of the stream.",
    "properties": {
        "event": {"type": "string", "description": "Always `task`."},
        "id": {"type": "string", "description": "For `Last-Event-ID`."},
        "data": {"type": "string", "description": "The task, as JSON."},
    },
}


@router.get(
    "/{task_id}/result",
    operation_id="get_result",
    summary="Wait for a task's result",
    responses={202: {"model": OutcomeAnswer, "description": "It is not finished yet."}, **refusals(404)},
)
async def get_result(
    task_id: UUID,
    principal: Reader,
    given: Given,
    request: Request,
    response: Response,
    wait_seconds: Annotated[
        float,
        Query(ge=0, le=2**31 - 1, description="How long to wait, up to the server's limit (30 s)."),
    ] = 0.0,
    reveal: Reveal = False,
) -> OutcomeAnswer:
    """The result as soon as there is one: 200 if the task is finished, however it ended, 202 if it goes on.

    The submitter of the task gets it unmasked; for others, values that look like secrets are masked.
    """
    client = client_of(principal, given)
    deadline = time.monotonic() + min(wait_seconds, given.settings.max_wait_seconds)
    outcome = await _outcome(client, given, task_id)
    redaction = await redaction_for(principal, given, task_id, reveal)
    seen: str | None = None
    waits = wait_seconds > 0 and not TaskState(outcome.state).is_terminal
    # One place from the first look to the last: given back between two looks, another request could take it.
    with given.token_watch.waiting(principal) as waiting, slot_of(request).waiting(is_needed=waits):
        while not TaskState(outcome.state).is_terminal:
            standing = await waiting.unless_over(given.watch.change(task_id, seen, deadline - time.monotonic()))
            if standing is None:
                response.status_code = 202
                break
            seen = standing.version
            outcome = await _outcome(client, given, task_id)
    if is_pointer(outcome.result) and given.config.payload_store is not None:
        outcome = await client.perform(with_result(given.config, outcome))
    return await shown_outcome(task_id, outcome, principal, given, redaction)


@router.get(
    "/{task_id}/events",
    operation_id="watch_task",
    summary="Watch a task until it ends",
    response_class=EventStream,
    responses={
        200: {
            "description": "Server-sent events: the task as lists show it, without large values, at once and then "
            "after every change of its state, retries, progress or cancel request. The last one is terminal.",
            "content": {"text/event-stream": {"schema": _EVENT, "example": _EVENTS}},
        },
        204: {"description": "`Last-Event-ID` says that you know the end. A browser stops coming back."},
        **refusals(404),
    },
)
async def watch_task(
    task_id: UUID,
    principal: Reader,
    given: Given,
    last_event_id: Annotated[
        str | None, Header(max_length=100, description="The id of the last event you saw, if you come back.")
    ] = None,
) -> Response:
    """Every change as it happens. Changes in quick succession are merged; the last one is always sent.

    The stream ends with the task, with the token, after five minutes, or when the server ends. Browsers come back by
    themselves.
    """
    client = client_of(principal, given)
    await _outcome(client, given, task_id)
    standing = await given.watch.change(task_id, None, given.settings.max_wait_seconds)
    if standing is not None and standing.version == last_event_id and TaskState(standing.state).is_terminal:
        return Response(status_code=204)
    return EventStream(_events(task_id, principal, given, last_event_id))


async def _events(task_id: UUID, principal: Principal, given: Services, seen: str | None) -> AsyncIterator[str]:
    client = client_of(principal, given)
    deadline = time.monotonic() + STREAM_SECONDS
    with given.token_watch.waiting(principal) as waiting:
        while not given.notifier.is_stopped and (left := deadline - time.monotonic()) > 0:
            change = given.watch.change(task_id, seen, min(KEEP_ALIVE_SECONDS, left))
            try:
                standing = await waiting.unless_over(change)
            except Problem:  # the token has ended
                return
            if standing is None:
                yield ": still here\n\n"
                continue
            query = lookup.get_within(task_id, given.settings.max_list_value_bytes, owner=client.calls.identity.owner)
            found = await given.run(query)
            if found is None:
                return
            seen = standing.version
            [answer] = await shown_listed([found], principal, given)
            yield f"event: task\nid: {seen}\ndata: {answer.model_dump_json()}\n\n"
            if answer.status.is_terminal:
                return


async def _outcome(client: AsyncClient, given: Services, task_id: UUID) -> lookup.Outcome:
    return known(task_id, await given.run(lookup.outcome(task_id, owner=client.calls.identity.owner)))

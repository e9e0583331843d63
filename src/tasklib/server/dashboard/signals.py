"""Sending a signal to a durable task, from a form."""

from __future__ import annotations

import json
from typing import Annotated, Any
from uuid import UUID

from fastapi import Form, Request
from starlette.responses import Response

from tasklib.errors import InvalidOption
from tasklib.models import Task
from tasklib.server.access import client_of
from tasklib.server.dashboard.screens import Operator, Serving, found_task, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.states import is_terminal
from tasklib.steps import is_plain_signal

router = screen_router()


@router.get("/tasks/{task_id}/signal")
async def form(request: Request, principal: Operator, services: Serving, task_id: UUID) -> Response:
    found = await found_task(principal, services, task_id)
    return _form(request, found, next(iter(waited_for(found)), ""), "null", "", None)


@router.post("/tasks/{task_id}/signal")
async def send(
    request: Request,
    principal: Operator,
    services: Serving,
    task_id: UUID,
    name: Annotated[str, Form()] = "",
    payload: Annotated[str, Form()] = "",
    key: Annotated[str, Form()] = "",
) -> Response:
    found = await found_task(principal, services, task_id)
    client = client_of(principal, services, to_change=True)
    try:
        sent = await client.signal_on_record(task_id, name.strip(), _value(payload), key=key.strip() or None)
    except InvalidOption as e:
        return _form(request, found, name, payload, key, str(e))
    if not sent:
        return done(request, f"/tasks/{task_id}", "The task is finished, so the signal was not sent.", "warn")
    return done(request, f"/tasks/{task_id}", "The signal is sent.")


def waited_for(task: Task) -> list[str]:
    """The names of signals that the task waits for."""
    return [name for name in task.awaited_signals or () if is_plain_signal(name)]


def _form(request: Request, task: Task, name: str, payload: str, key: str, error: str | None) -> Response:
    return page(
        request,
        "task_signal.html",
        status=422 if error else 200,
        task=task,
        is_finished=is_terminal(task),
        waited_for=waited_for(task),
        name=name,
        payload=payload,
        key=key,
        error=error,
    )


def _value(text: str) -> Any:
    try:
        return json.loads(text.strip() or "null")
    except (ValueError, RecursionError) as e:
        raise InvalidOption(f'The payload is not JSON: {e}. A text needs quotes: "yes".') from None

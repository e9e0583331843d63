"""Editing a task: one that waits is changed in place, of another one an edited copy is submitted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Form, Request
from starlette.responses import Response

from tasklib.errors import InvalidOption, QueueFull, TaskExecutionError, TaskNotEditable, TaskNotFound
from tasklib.formatting import length
from tasklib.models import Task
from tasklib.server.access import client_of
from tasklib.server.dashboard.screens import Operator, Serving, found_task, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.server.services import Services
from tasklib.server.task_response import edited_arguments
from tasklib.states import CLAIMABLE
from tasklib.tasks import registry

router = screen_router()
_REFUSALS = (InvalidOption, TaskExecutionError, TaskNotEditable, TaskNotFound, QueueFull)


@dataclass(frozen=True)
class Fields:
    """The texts of the form."""

    arguments: str = "{}"
    queue: str = ""
    priority: str = ""
    max_retries: str = ""
    timeout_seconds: str = ""
    tags: str = "{}"
    due: str = ""


def sent(
    arguments: Annotated[str, Form()] = "{}",
    queue: Annotated[str, Form()] = "",
    priority: Annotated[str, Form()] = "",
    max_retries: Annotated[str, Form()] = "",
    timeout_seconds: Annotated[str, Form()] = "",
    tags: Annotated[str, Form()] = "{}",
    due: Annotated[str, Form()] = "",
) -> Fields:
    return Fields(arguments, queue, priority, max_retries, timeout_seconds, tags, due)


Sent = Annotated[Fields, Depends(sent)]


@router.get("/tasks/{task_id}/edit")
async def edit(request: Request, principal: Operator, services: Serving, task_id: UUID) -> Response:
    found = await found_task(principal, services, task_id)
    return _form(request, found, filled(found, services), in_place=found.state in CLAIMABLE)


@router.post("/tasks/{task_id}/edit")
async def submit_edited(
    request: Request,
    principal: Operator,
    services: Serving,
    task_id: UUID,
    fields: Sent,
    in_place: Annotated[bool, Form()] = False,
) -> Response:
    """Change the task as the form says, or submit a new one; the old one then stays as it is."""
    found = await found_task(principal, services, task_id)
    client = client_of(principal, services, to_change=True)
    try:
        if in_place:
            await client.edit_task(task_id, **changes(found, fields, services))
            return done(request, f"/tasks/{task_id}", "The task is changed.")
        made = await client.submit_task(found.name, **copied(found, fields, services))
    except _REFUSALS as e:
        return _form(request, found, fields, in_place=in_place, error=str(e))
    return done(request, f"/tasks/{made}", "Submitted as a new task. The original task is unchanged.")


def filled(task: Task, services: Services) -> Fields:
    """The form as it is shown first; what is hidden elsewhere is hidden in it."""
    hidden, texts = services.redaction.masked, services.redaction.texts_of(task)
    due = task.next_retry_at or task.scheduled_at
    return Fields(
        json_of(hidden(task.kwargs, texts)), task.queue, str(task.priority), str(task.max_retries),
        str(task.timeout_seconds or ""), json_of(hidden(task.tags, texts)), f"{due.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}",
    )  # fmt: skip


def changes(task: Task, fields: Fields, services: Services) -> dict[str, Any]:
    """What the form changes, as `edit_task` takes it. A field that is as it was shown says nothing."""
    shown = filled(task, services)
    said = {"queue": fields.queue.strip() or None, **numbers(fields)}
    arguments, tags = json_object("The arguments", fields.arguments), json_object("The tags", fields.tags)
    if arguments != json.loads(shown.arguments):
        said["kwargs"] = edited_arguments(task, task.id, arguments, services)
    if tags != json.loads(shown.tags):
        said["tags"] = services.redaction.restored(tags, task.tags, services.redaction.texts_of(task))
    if fields.due.strip() not in ("", shown.due):
        said.update(due_option(fields.due.strip()))
    return said


def copied(task: Task, fields: Fields, services: Services) -> dict[str, Any]:
    """The form as the options of a new task; what it doesn't say is taken from the old one."""
    old = {"priority": task.priority, "max_retries": task.max_retries, "timeout_seconds": task.timeout_seconds}
    said = {name: value for name, value in numbers(fields).items() if value is not None}
    return {
        **old,
        **said,
        "kwargs": edited_arguments(task, task.id, json_object("The arguments", fields.arguments), services),
        "registered_elsewhere": registry.functions.get(task.name) is None,
        "queue": fields.queue.strip() or task.queue,
        "required_capabilities": task.required_capabilities,
        "tags": {**task.tags, "edited_from": str(task.id)},
    }


def json_of(value: Any) -> str:
    """A value as people read and write it."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _form(request: Request, task: Task, fields: Fields, *, in_place: bool, error: str | None = None) -> Response:
    return page(
        request, "task_edit.html", status=422 if error else 200, task=task, fields=fields, in_place=in_place,
        error=error, is_known=registry.functions.get(task.name) is not None,
    )  # fmt: skip


def json_object(what: str, text: str) -> dict[str, Any]:
    """A field of the form that has to be a JSON object."""
    try:
        edited = json.loads(text.strip() or "{}")
    except (ValueError, RecursionError) as e:
        raise InvalidOption(f"{what} are not JSON: {e}.") from None
    if not isinstance(edited, dict):
        raise InvalidOption(f'{what} are a JSON object, such as {{"to": "ada@example.com"}}.')
    return edited


def numbers(fields: Fields) -> dict[str, Any]:
    """The options that are whole numbers; None where the form says nothing."""
    return {
        "priority": _whole("The priority", fields.priority),
        "max_retries": _whole("The number of retries", fields.max_retries),
        "timeout_seconds": _whole("The timeout", fields.timeout_seconds),
    }


def _whole(what: str, text: str) -> int | None:
    try:
        return int(text) if text.strip() else None
    except ValueError:
        raise InvalidOption(f"{what} is a whole number, not {text!r}.") from None


def due_option(text: str) -> dict[str, Any]:
    """A moment, or a time from now."""
    try:
        if (span := length(text)) is not None:
            return {"delay_seconds": span.total_seconds()}
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise InvalidOption(
            f"Due is a time such as 2026-03-29 03:00Z, or 15m for in 15 minutes, not {text!r}."
        ) from None
    return {"scheduled_at": moment if moment.tzinfo else moment.replace(tzinfo=UTC)}

"""Submitting a task by hand: a name, arguments as JSON, and the options that its function doesn't have to decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Form, Query, Request
from starlette.responses import Response

from tasklib.errors import InvalidOption, QueueFull, TaskExecutionError
from tasklib.server.access import Principal, Role, client_of
from tasklib.server.dashboard.screens import Serving, Submitter, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.server.dashboard.task_edit import Fields, Sent, due_option, json_object, numbers
from tasklib.server.services import Services
from tasklib.store import fleet
from tasklib.tasks import registry

router = screen_router()

_MOST_NAMES = 500
_REFUSALS = (InvalidOption, TaskExecutionError, QueueFull)


@router.get("/tasks/new")
async def new(
    request: Request,
    principal: Submitter,
    services: Serving,
    name: Annotated[str, Query(max_length=1000)] = "",
    queue: Annotated[str, Query(max_length=1000)] = "",
) -> Response:
    return await _form(request, principal, services, name, Fields(queue=queue))


@router.post("/tasks/new")
async def submit(
    request: Request, principal: Submitter, services: Serving, fields: Sent, name: Annotated[str, Form()] = ""
) -> Response:
    try:
        client = client_of(principal, services, to_change=True)
        made = await client.submit_task(name.strip(), **_options(name.strip(), fields))
    except _REFUSALS as e:
        return await _form(request, principal, services, name, fields, error=str(e))
    return done(request, f"/tasks/{made}", "Submitted.")


def _options(name: str, fields: Fields) -> dict[str, Any]:
    """The form as the options of a new task. What is left empty, the function decides, or the defaults."""
    said = {**numbers(fields), "queue": fields.queue.strip() or None}
    if fields.due.strip():
        said.update(due_option(fields.due.strip()))
    return {
        **{option: value for option, value in said.items() if value is not None},
        "kwargs": json_object("The arguments", fields.arguments),
        "tags": json_object("The tags", fields.tags),
        "registered_elsewhere": registry.functions.get(name) is None,
    }


async def _form(
    request: Request, principal: Principal, services: Services, name: str, fields: Fields, error: str | None = None
) -> Response:
    known = await _names(services) if principal.may(Role.VIEWER) else []
    return page(
        request, "task_new.html", status=422 if error else 200, name=name, fields=fields, error=error, known=known
    )


async def _names(services: Services) -> Sequence[str]:
    """The names that the server has loaded, and those that live workers run."""
    workers = [w for w in await services.run(fleet.workers()) if w.status != "dead"]
    return sorted({*registry.functions, *(name for w in workers for name in w.names or ())})[:_MOST_NAMES]

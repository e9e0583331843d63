"""Saved searches on the screen of tasks, and export of what a search finds."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Form, Query, Request
from starlette.responses import Response, StreamingResponse

from tasklib.client.search_terms import MAX_LENGTH
from tasklib.errors import InvalidOption
from tasklib.server.access import client_of
from tasklib.server.dashboard.screens import Operator, Reader, Serving, screen_router
from tasklib.server.dashboard.shell import done
from tasklib.server.task_response import refuse_hidden, refuse_to_save
from tasklib.store.search import FoundTask

router = screen_router()

MOST_EXPORTED = 10_000
_PAGE = 500
_COLUMNS = (
    "id", "state", "name", "queue", "priority", "attempts", "max_retries", "created_at", "scheduled_at",
    "next_retry_at", "started_at", "completed_at", "worker_id", "error",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for a formula."""


def tasks_address(q: str) -> str:
    """The list of what a search finds."""
    return f"/tasks?{urlencode({'q': q})}" if q else "/tasks"


@router.post("/searches/save")
async def save(
    request: Request,
    principal: Operator,
    services: Serving,
    name: Annotated[str, Form(max_length=200)] = "",
    q: Annotated[str, Form()] = "",
) -> Response:
    try:
        refuse_to_save(q, services)
        changed = await client_of(principal, services, to_change=True).save_search(name.strip(), q)
    except InvalidOption as e:
        return done(request, tasks_address(q), str(e), "bad")
    said = f"Saved as {name.strip()}." if changed else f"{name.strip()} is that search already."
    return done(request, tasks_address(q), said)


@router.post("/searches/delete")
async def delete(
    request: Request,
    principal: Operator,
    services: Serving,
    name: Annotated[str, Form()] = "",
    q: Annotated[str, Form()] = "",
) -> Response:
    try:
        changed = await client_of(principal, services, to_change=True).delete_search(name)
    except InvalidOption as e:
        return done(request, tasks_address(q), str(e), "bad")
    said = f"Deleted the saved search {name}." if changed else "There is no such saved search any more."
    return done(request, tasks_address(q), said, "good" if changed else "warn")


@router.get("/tasks/export")
async def export(
    principal: Reader,
    services: Serving,
    q: Annotated[str, Query(max_length=MAX_LENGTH)] = "",
    format: Annotated[Literal["csv", "json"], Query()] = "csv",
) -> Response:
    """What the list shows, page by page: at most 10,000 tasks, the newest first, masked as in the list."""
    refuse_hidden(q, principal, services)
    client = client_of(principal, services)
    first = await client.search_tasks(q, limit=_PAGE)

    async def rows() -> AsyncIterator[FoundTask]:
        page, left = first, MOST_EXPORTED
        while True:
            for task in services.redaction.found(page.tasks[:left]):
                yield task
            left -= len(page.tasks)
            # A search that has read all it may ends here, as the list does.
            if page.older is None or page.looked_at is not None or left <= 0:
                return
            page = await client.search_tasks(q, limit=min(_PAGE, left), older_than=page.older)

    text, kind = (_csv(rows()), "text/csv") if format == "csv" else (_json(rows()), "application/json")
    headers = {"Content-Disposition": f'attachment; filename="tasks.{format}"', "Cache-Control": "no-store"}
    return StreamingResponse(text, media_type=f"{kind}; charset=utf-8", headers=headers)


async def _csv(rows: AsyncIterator[FoundTask]) -> AsyncIterator[str]:
    yield _line(_COLUMNS)
    async for task in rows:
        yield _line([_cell(value) for value in _values(task, str)])


async def _json(rows: AsyncIterator[FoundTask]) -> AsyncIterator[str]:
    separator = "["
    async for task in rows:
        values = _values(task, lambda value: value.isoformat() if isinstance(value, datetime) else value)
        yield separator + json.dumps(dict(zip(_COLUMNS, values, strict=True)), default=str)
        separator = ",\n"
    yield "]\n" if separator != "[" else "[]\n"


def _values(task: FoundTask, said: Callable[[Any], Any]) -> list[Any]:
    found = (getattr(task, column) for column in _COLUMNS)
    return [value if value is None or isinstance(value, int) else said(value) for value in found]


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) and not isinstance(value, int | float | UUID) else text


def _line(cells: Sequence[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(cells)
    return buffer.getvalue()

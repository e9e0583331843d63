"""One task: its details and history, why it is not running, and actions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Request
from starlette.responses import Response

from tasklib.client.explaining import Explanation, Reason
from tasklib.client.identity import said_key
from tasklib.errors import InvalidOption
from tasklib.models import Task
from tasklib.priorities import effective_priority
from tasklib.server.access import Role, client_of
from tasklib.server.dashboard.approvals import address as approval_address
from tasklib.server.dashboard.approvals import may_answer
from tasklib.server.dashboard.related import children_of, only, outside_links, related
from tasklib.server.dashboard.schedules import address
from tasklib.server.dashboard.screens import Operator, Reader, Serving, found_task, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.server.dashboard.task_edit import json_of
from tasklib.server.dashboard.task_spans import life
from tasklib.server.dashboard.timeline import progress_of, seconds_taken, steps
from tasklib.server.task_response import may_reveal, redaction_for, revealed, shown_explanation
from tasklib.states import CLAIMABLE, TaskState, is_terminal
from tasklib.store import dead_letters, flows

router = screen_router()

MOST_SHOWN = 200_000
"""Characters of a value or a traceback on the page; the rest is for programs."""
MOST_RECORDS = 20
MOST_RECORDED = 100
"""Records of a durable task."""


@router.get("/tasks/{task_id}")
async def task(
    request: Request,
    principal: Reader,
    services: Serving,
    task_id: UUID,
    reveal: Annotated[bool, Query()] = False,
) -> Response:
    client = client_of(principal, services)
    found = await found_task(principal, services, task_id)
    settings = await client.settings()
    explanation: Explanation | None = None
    if not is_terminal(found):
        explanation = await client.explain_task(task_id)
    recorded = await client.steps_of(task_id)
    asks = [] if is_terminal(found) else await client.approvals(task_id=task_id, limit=MOST_RECORDS)
    records = []
    if principal.may(Role.VIEWER):
        records = services.redaction.records(await client.audit(target=str(task_id), limit=MOST_RECORDS))
    children = [] if principal.only_own else await children_of(client, recorded)
    parent = None if found.flow is None else await services.run(flows.parent_of(found.flow))
    key = said_key(found.idempotency_key, found.submitted_by)
    reveal = reveal and may_reveal(principal)
    redaction = await redaction_for(principal, services, task_id, reveal)
    found = revealed(found, services) if reveal else found
    if explanation is not None:
        explanation = shown_explanation(explanation, found, redaction)
    stored = _values(found)
    redaction.task(found)
    arguments = {"args": found.args, "kwargs": found.kwargs} if found.args else found.kwargs
    return page(
        request,
        "task.html",
        task=found,
        is_finished=is_terminal(found),
        is_editable=found.state in CLAIMABLE,
        waits_for_its_time=_waits_for_its_time(found),
        is_revealed=reveal,
        is_hiding=_values(found) != stored,
        arguments=_shown(arguments),
        result=_result(found),
        progress=None if found.state == TaskState.COMPLETED else progress_of(found.progress),
        idempotency_key=key,
        trace_id=found.trace_id,
        steps=steps(found),
        chart=life(found, recorded, children, datetime.now(UTC)),
        children=children,
        related=list(related(found, parent, key)),
        links=list(outside_links(services.settings.links, found)),
        error=_cut(found.error),
        before_error=_before_last_line(_cut(found.error)),
        effective=effective_priority(
            found,
            promote_to_medium_after_seconds=settings.promote_to_medium_after_seconds,
            promote_to_high_after_seconds=settings.promote_to_high_after_seconds,
        ),
        took=seconds_taken(found),
        why=_why(explanation),
        position=explanation.position if explanation else None,
        records=records,
        asks=[(redaction.approval(a).title, approval_address(a), may_answer(principal, a)) for a in asks],
        recorded=recorded[-MOST_RECORDED:],
        recorded_count=len(recorded),
        takes_signals=found.awaited_signals is not None or bool(recorded),
        of_schedule=address(found.schedule or ""),
        cause=await services.run(dead_letters.fingerprint(task_id)) if found.error else None,
        only=only,
        tags=[(key, value if isinstance(value, str) else json.dumps(value)) for key, value in found.tags.items()],
    )


@router.post("/tasks/{task_id}/cancel")
async def cancel(request: Request, principal: Operator, services: Serving, task_id: UUID) -> Response:
    state = await client_of(principal, services, to_change=True).cancel_task(task_id)
    said = {
        TaskState.CANCELLED: "The task is cancelled.",
        TaskState.RUNNING: "Its worker was requested to stop it.",
    }.get(state, f"The task is {state.value} already; nothing changed.")
    return done(request, f"/tasks/{task_id}", said, "good" if state in ("cancelled", "running") else "warn")


@router.post("/tasks/{task_id}/replay")
async def replay(request: Request, principal: Operator, services: Serving, task_id: UUID) -> Response:
    try:
        await client_of(principal, services, to_change=True).replay_task(task_id)
    except InvalidOption as e:
        return done(request, f"/tasks/{task_id}", str(e), "warn")
    return done(request, f"/tasks/{task_id}", "It runs again from the beginning, with all its retries.")


@router.post("/tasks/{task_id}/run")
async def run_now(request: Request, principal: Operator, services: Serving, task_id: UUID) -> Response:
    try:
        await client_of(principal, services, to_change=True).run_task_now(task_id)
    except InvalidOption as e:
        return done(request, f"/tasks/{task_id}", str(e), "warn")
    return done(request, f"/tasks/{task_id}", "It is due now.")


def _waits_for_its_time(task: Task) -> bool:
    """Whether it can be run now: as run_now.sql decides, which has the last word."""
    due = task.next_retry_at or task.scheduled_at
    at_rest = task.waits_for is None and task.awaited_signals is None
    return task.state in CLAIMABLE and at_rest and due > datetime.now(UTC)


def _values(task: Task) -> list[Any]:
    """What may be hidden."""
    return [task.args, task.kwargs, task.tags, task.progress, task.result, task.error, task.history]


def _result(task: Task) -> str | None:
    return _shown(task.result) if task.state == TaskState.COMPLETED else None


def _why(explanation: Explanation | None) -> tuple[Reason, ...]:
    """Of a running task the page says itself that it runs, and since when."""
    if explanation is None:
        return ()
    return explanation.reasons[1:] if explanation.state == TaskState.RUNNING else explanation.reasons


def _before_last_line(error: str | None) -> str:
    """A traceback without the line that the page shows above it."""
    return (error or "").rstrip().rpartition("\n")[0]


def _shown(value: Any) -> str:
    return _cut(json_of(value)) or ""


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= MOST_SHOWN:
        return text
    # The end of a traceback says what went wrong.
    return f"{text[: MOST_SHOWN // 2]}\n… {len(text) - MOST_SHOWN:,} characters more …\n{text[-MOST_SHOWN // 2 :]}"

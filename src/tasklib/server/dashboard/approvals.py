"""Approvals: what durable tasks ask people. A list, and one of them as a form; it works without script."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Form, Query, Request
from starlette.datastructures import FormData
from starlette.responses import Response

from tasklib.client.approval_forms import fields_of, read_texts
from tasklib.client.cursors import cursor, moment, place_of
from tasklib.errors import ApprovalNotOpen, InvalidOption
from tasklib.server.access import Principal, Role, checked, client_of
from tasklib.server.dashboard.screens import Approver, Reader, Serving, screen_router
from tasklib.server.dashboard.shell import done, page
from tasklib.server.redaction import Redaction
from tasklib.store.approvals import ApprovalPlace, OpenApproval

router = screen_router()

PAGE = 50
FIELD = "field:"
"""What the names of the inputs begin with: a field of the form may be called like one of ours."""
MOST_SHOWN = 20_000


@router.get("/approvals")
async def approvals(
    request: Request, principal: Reader, services: Serving, after: Annotated[str, Query(max_length=2000)] = ""
) -> Response:
    place = ApprovalPlace(*place_of("approvals", after, moment, UUID, str)) if after else None
    found = await client_of(principal, services).approvals(after=place, limit=PAGE + 1)
    last = found[PAGE - 1] if len(found) > PAGE else None
    older = last and {"after": cursor("approvals", last.asked_at.isoformat(), str(last.task_id), last.name)}
    return page(
        request,
        "approvals.html",
        shown=[services.redaction.approval(each) for each in found[:PAGE]],
        may_answer=lambda approval: may_answer(principal, approval),
        one=address,
        older=older,
        newer={"after": None} if after else None,
    )


@router.get("/approvals/{task_id}")
async def approval(
    request: Request, principal: Reader, services: Serving, task_id: UUID, name: Annotated[str, Query(max_length=500)]
) -> Response:
    found = await client_of(principal, services).approval(task_id, name)
    return _form(request, principal, services.redaction, found, {})


@router.post("/approvals/{task_id}")
async def answer(
    request: Request,
    principal: Approver,
    services: Serving,
    task_id: UUID,
    name: Annotated[str, Form(max_length=500)] = "",
    number: Annotated[int, Form()] = 0,
    decision: Annotated[str, Form(pattern="^(approve|reject)?$")] = "",
    comment: Annotated[str, Form()] = "",
) -> Response:
    client = client_of(principal, services)
    try:
        found = await client.approval(task_id, name)
        checked(principal, frozenset({Role(found.role)}))
        if found.number != number:  # the task began anew, and asks something else under this name
            raise ApprovalNotOpen(task_id, name)
        texts = _texts(await request.form())
        if not decision:
            raise InvalidOption("Choose one of the buttons.")
        approved = decision == "approve"
        form = read_texts(fields_of(found.form), texts) if approved and found.form is not None else None
        await client.answer(found, approved=approved, form=form, comment=comment.strip().replace("\r\n", "\n"))
    except ApprovalNotOpen:
        return done(request, f"/tasks/{task_id}", "This was answered before, or its time is over.", "warn")
    except InvalidOption as e:
        return _form(request, principal, services.redaction, found, texts, comment=comment, error=str(e))
    return done(request, f"/tasks/{task_id}", "Approved." if approved else "Rejected.")


def may_answer(principal: Principal, approval: OpenApproval) -> bool:
    """Whether this principal has the role that the approval asks for."""
    return principal.may(Role(approval.role))


def address(approval: OpenApproval) -> str:
    """The page of an approval."""
    return f"/approvals/{approval.task_id}?{urlencode({'name': approval.name})}"


def _form(
    request: Request,
    principal: Principal,
    redaction: Redaction,
    approval: OpenApproval,
    texts: dict[str, str],
    *,
    comment: str = "",
    error: str | None = None,
) -> Response:
    approval = redaction.approval(approval)
    fields = fields_of(approval.form)
    return page(
        request,
        "approval.html",
        status=422 if error else 200,
        approval=approval,
        details=details_of(approval.details),
        fields=fields,
        given={field.name: texts.get(field.name) if error else _default(field.default) for field in fields},
        comment=comment,
        error=error,
        may_answer=may_answer(principal, approval),
    )


def details_of(details: Any) -> list[tuple[str, str]] | str | None:
    """What is said about an approval: a list of names and values, or a text."""
    if details is None:
        return None
    if isinstance(details, dict):
        return [(str(name), _text(value)) for name, value in details.items()]
    return _text(details)


def _texts(form: FormData) -> dict[str, str]:
    return {
        key.removeprefix(FIELD): value
        for key, value in form.multi_items()
        if key.startswith(FIELD) and isinstance(value, str)
    }


def _default(value: Any) -> str | None:
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} …"
